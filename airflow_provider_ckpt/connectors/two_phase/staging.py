"""Describe what a lane staged of a batch, and track the outcomes of a wave during its commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.wave import BatchTask, Outcome


@dataclass(frozen=True)
class StagedBatch:
    """A staged batch, as it is transferred in an outcome.

    :param range: positions of the batch
    :param bound: source bound, for the receipt
    :param verdict: verdict to be claimed
    :param counts: the batch's counts
    :param name: unique name of what was staged; None if the batch has no rows
    :param files: data files as the table format describes them; ``path`` is absolute or relative to the table
    :param dead_letters: path of its dead letters, or None
    :param schema: columns of the rows, in the table format's own notation; None if the batch came without columns
    :param positions: positions of the records read, for the receipt
    """

    range: Range
    bound: int | None
    verdict: Verdict
    counts: Counts
    name: str | None
    files: Sequence[Mapping[str, Any]]
    dead_letters: str | None
    schema: str | None
    positions: str | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> StagedBatch:
        """Return what an outcome says was staged."""
        data: Mapping[str, Any] = outcome.staged or {}
        return cls(
            Range(*data["range"]),
            data["bound"],
            Verdict(data["verdict"]),
            Counts(**data["counts"]),
            data["name"],
            data["files"],
            data["dead_letters"],
            data["schema"],
            data["positions"],
        )

    def outcome(self, task: BatchTask, dead_letters: Mapping[str, int]) -> Outcome:
        """Return the outcome that carries this; :meth:`of` is its inverse.

        :param task: the batch and its attempt
        :param dead_letters: number of dead letters by error type
        """
        data = {
            "range": [self.range.start, self.range.end],
            "bound": self.bound,
            "verdict": self.verdict.value,
            "counts": self.counts.to_json(),
            "name": self.name,
            "files": [dict(file) for file in self.files],
            "dead_letters": self.dead_letters,
            "schema": self.schema,
            "positions": self.positions,
        }
        return Outcome(task.key, task.attempt, AttemptOutcome.STAGED, dead_letters=dead_letters, staged=data)

    def data(self, table: Path) -> list[Path]:
        """Return the data files that were staged."""
        return [table / file["path"] for file in self.files]

    def paths(self, table: Path, *, dead_letters: bool = True) -> list[Path]:
        """Return the files that were staged, with or without the dead letters."""
        return [*self.data(table), Path(self.dead_letters)] if dead_letters and self.dead_letters else self.data(table)


def remove_files(paths: Iterable[Path]) -> None:
    """Remove files that no commit ever named; best effort, since no reader uses them."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


class StagedWave:
    """Outcomes of one wave: those that wait for their commit, and the final ones.

    ``waiting`` is in the order of the batches' keys. ``attempted`` are the batches that some commit of this wave named;
    such a commit may still take effect until the result is known.
    """

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        ordered = sorted(enumerate(outcomes), key=lambda item: item[1].key)
        self._outcomes = dict(enumerate(outcomes))
        self.waiting = {i: StagedBatch.of(o) for i, o in ordered if o.outcome is AttemptOutcome.STAGED}
        self.attempted: set[int] = set()

    def __getitem__(self, index: int) -> Outcome:
        return self._outcomes[index]

    @property
    def outcomes(self) -> list[Outcome]:
        """All outcomes, in the order given."""
        return list(self._outcomes.values())

    @property
    def failed_partitions(self) -> set[str]:
        """Partitions with a failed batch."""
        return {o.key.partition for o in self._outcomes.values() if o.outcome is AttemptOutcome.FAILED}

    @property
    def schema(self) -> str | None:
        """Columns of the first batch that has rows, else of the first that knows its columns."""
        waiting = sorted(self.waiting.values(), key=lambda staged: staged.name is None)
        return next((staged.schema for staged in waiting if staged.schema is not None), None)

    def receipted(self, index: int, receipt: Receipt, *, own: bool) -> None:
        """Record that a batch has its receipt.

        :param index: number of the batch in the wave
        :param receipt: its receipt
        :param own: whether the receipt is from this attempt
        """
        self.waiting.pop(index)
        self._outcomes[index] = replace(
            self._outcomes[index],
            outcome=AttemptOutcome(receipt.verdict.value),
            receipt=receipt,
            receipt_existed=not (own and index in self.attempted),
            dead_letters=self._outcomes[index].dead_letters if own else {},
            staged=None,
        )

    def discard(self, index: int, staged: StagedBatch, table: Path, *, dead_letters: bool = True) -> None:
        """Remove what was staged of a batch, unless a commit of this wave named it.

        :param index: number of the batch in the wave
        :param staged: what was staged
        :param table: directory of the table
        :param dead_letters: whether to remove its dead letters, too
        """
        if index not in self.attempted:
            remove_files(staged.paths(table, dead_letters=dead_letters))

    def not_attempted(self, index: int) -> None:
        """Record that a batch was not attempted, since an earlier one failed."""
        self.waiting.pop(index)
        self._outcomes[index] = replace(
            self._outcomes[index], outcome=AttemptOutcome.NOT_ATTEMPTED, dead_letters={}, staged=None
        )

    def failed(self, index: int, error: CkptError) -> None:
        """Record that a batch failed; as far as known, it was not committed."""
        self.waiting.pop(index)
        self._outcomes[index] = replace(
            self._outcomes[index], outcome=AttemptOutcome.FAILED, error=error.info, dead_letters={}, staged=None
        )
