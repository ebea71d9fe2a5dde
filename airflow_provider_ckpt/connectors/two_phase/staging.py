"""What a lane staged of a batch, as it travels in an outcome, and the book a commit keeps of a wave's outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.core.batch import AttemptOutcome, Counts, Receipt, Verdict
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave import BatchTask, Outcome


@dataclass(frozen=True)
class Staged:
    """One staged batch.

    :param name: of what was staged, as nothing else was ever called; None if the batch has no rows
    :param files: its rows: data files as the table format describes them; ``path`` is relative to the table or absolute
    :param letters: path of its dead letters, or None
    :param schema: of the rows, as the table format writes it down; None if the batch came without columns
    :param positions: of the records read, for the receipt
    """

    range: Range
    bound: int | None
    verdict: Verdict
    counts: Counts
    name: str | None
    files: Sequence[Mapping[str, Any]]
    letters: str | None
    schema: str | None
    positions: str | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> Staged:
        """What the outcome says was staged."""
        data: Mapping[str, Any] = outcome.staged or {}
        return cls(
            Range(*data["range"]),
            data["bound"],
            Verdict(data["verdict"]),
            Counts(**data["counts"]),
            data["name"],
            data["files"],
            data["letters"],
            data["schema"],
            data["positions"],
        )

    def outcome(self, task: BatchTask, letters: Mapping[str, int]) -> Outcome:
        """The outcome that carries this; :meth:`of` is its inverse."""
        data = {
            "range": [self.range.start, self.range.end],
            "bound": self.bound,
            "verdict": self.verdict.value,
            "counts": self.counts.to_json(),
            "name": self.name,
            "files": [dict(file) for file in self.files],
            "letters": self.letters,
            "schema": self.schema,
            "positions": self.positions,
        }
        return Outcome(task.key, task.attempt, AttemptOutcome.STAGED, letters=letters, staged=data)

    def data(self, table: Path) -> list[Path]:
        """The data files that were staged."""
        return [table / file["path"] for file in self.files]

    def paths(self, table: Path, *, letters: bool = True) -> list[Path]:
        """The files that were staged, with or without the dead letters."""
        return [*self.data(table), Path(self.letters)] if letters and self.letters else self.data(table)


def discard(paths: Iterable[Path]) -> None:
    """Remove files that no commit ever named; best effort, since nobody reads them anyway."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


class StagedWave:
    """The outcomes of one wave: which still wait for their commit, and what became of the others.

    ``waiting`` is in the order of the batches' keys; ``attempted`` are those that some commit of this wave named, which
    may still take effect wherever that is not yet known.
    """

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        ordered = sorted(enumerate(outcomes), key=lambda item: item[1].key)
        self._outcomes = dict(enumerate(outcomes))
        self.waiting = {i: Staged.of(o) for i, o in ordered if o.outcome is AttemptOutcome.STAGED}
        self.attempted: set[int] = set()

    def __getitem__(self, index: int) -> Outcome:
        return self._outcomes[index]

    @property
    def outcomes(self) -> list[Outcome]:
        """All outcomes, in the order given."""
        return list(self._outcomes.values())

    @property
    def failed_partitions(self) -> set[str]:
        """Partitions of which a batch failed."""
        return {o.key.partition for o in self._outcomes.values() if o.outcome is AttemptOutcome.FAILED}

    @property
    def schema(self) -> str | None:
        """The columns of the first batch that has rows, else of the first that knows its columns."""
        waiting = sorted(self.waiting.values(), key=lambda staged: staged.name is None)
        return next((staged.schema for staged in waiting if staged.schema is not None), None)

    def receipted(self, index: int, receipt: Receipt, *, ours: bool) -> None:
        """The batch has its receipt.

        :param ours: whether it is that of this very attempt
        """
        self.waiting.pop(index)
        self._outcomes[index] = replace(
            self._outcomes[index],
            outcome=AttemptOutcome(receipt.verdict.value),
            receipt=receipt,
            found=not (ours and index in self.attempted),
            letters=self._outcomes[index].letters if ours else {},
            staged=None,
        )

    def discard(self, index: int, staged: Staged, table: Path, *, letters: bool = True) -> None:
        """Remove what was staged of a batch, unless a commit of this wave named it.

        :param letters: whether its dead letters go too
        """
        if index not in self.attempted:
            discard(staged.paths(table, letters=letters))

    def not_attempted(self, index: int) -> None:
        """The batch stood behind one that failed."""
        self.waiting.pop(index)
        self._outcomes[index] = replace(
            self._outcomes[index], outcome=AttemptOutcome.NOT_ATTEMPTED, letters={}, staged=None
        )

    def failed(self, index: int, error: CkptError) -> None:
        """The batch was not committed, as far as anyone knows."""
        self.waiting.pop(index)
        self._outcomes[index] = replace(
            self._outcomes[index], outcome=AttemptOutcome.FAILED, error=error.info, letters={}, staged=None
        )
