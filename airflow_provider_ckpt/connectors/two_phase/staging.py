"""Describe the files that a lane staged for a batch, and track the outcomes of a wave during its commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError, IoError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome


@dataclass(frozen=True)
class StagedBatch:
    """A batch whose files a lane has written, as the outcome ``staged`` carries it from the lane to the committer.

    :param range: positions of the batch
    :param bound: the source's closed bound, for the receipt
    :param verdict: the verdict that the commit claims for the batch
    :param counts: the batch's record counts
    :param name: unique name of the staged data files; None if the batch has no rows
    :param files: data files as the table format describes them; ``path`` is absolute or relative to the table
    :param dead_letters: whether the attempt has a file of dead letters
    :param schema: columns of the rows, in the table format's own notation; None if the batch has no rows and its
        columns are not known
    :param positions: positions of the records read, for the receipt
    """

    range: Range
    bound: int | None
    verdict: Verdict
    counts: Counts
    name: str | None
    files: Sequence[Mapping[str, Any]]
    dead_letters: bool
    schema: str | None
    positions: str | None = None

    @classmethod
    def of(cls, outcome: Outcome) -> StagedBatch:
        """Return the staged batch that an outcome ``staged`` carries."""
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
        """Return an outcome ``staged`` that carries this batch; :meth:`of` is its inverse.

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

    @property
    def for_refresh(self) -> dict[str, Any]:
        """Files and columns of the batch, as its receipt stores them until the refresh is published."""
        return {"files": [dict(file) for file in self.files], "schema": self.schema}

    @classmethod
    def of_receipt(cls, entry: CommittedReceipt) -> Self:
        """Return the staged batch that a receipt of a refresh describes; see :attr:`for_refresh`."""
        receipt, staged = entry.receipt, entry.staged or {"files": [], "schema": None}
        return cls(
            receipt.range,
            receipt.bound,
            receipt.verdict,
            receipt.counts,
            entry.file,
            staged["files"],
            dead_letters=False,
            schema=staged["schema"],
            positions=receipt.positions,
        )

    def data(self, table: Location) -> list[Location]:
        """Return the absolute paths of the staged data files.

        :param table: directory of the table
        """
        return [table.resolve(file["path"]) for file in self.files]


def remove_files(paths: Iterable[Location]) -> None:
    """Remove files that no commit ever contained; errors are ignored, since no reader uses the files."""
    for path in paths:
        with suppress(IoError):
            path.remove()


class StagedWave:
    """Outcomes of one wave during its commit: final outcomes, and outcomes of batches that wait for the commit.

    ``waiting`` has the staged batches without a final outcome, by index in the wave, in the order of the batches' keys.
    ``attempted`` has the indexes of batches that some commit of this wave contained, even one that seemed to fail: such
    a commit may still take effect, so their files must not be removed.

    :param outcomes: outcomes that the lanes returned; those other than ``staged`` are final
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
        """All outcomes, in the order of the constructor's argument."""
        return list(self._outcomes.values())

    @property
    def failed_keys(self) -> list[BatchKey]:
        """Keys of the batches that failed."""
        return [o.key for o in self._outcomes.values() if o.outcome is AttemptOutcome.FAILED]

    @property
    def schema(self) -> str | None:
        """Columns of the first waiting batch with rows, or else of the first with columns; None if none has columns."""
        waiting = sorted(self.waiting.values(), key=lambda staged: staged.name is None)
        return next((staged.schema for staged in waiting if staged.schema is not None), None)

    def receipted(self, index: int, receipt: Receipt, *, own: bool) -> None:
        """Record that a waiting batch has a receipt; its outcome becomes the receipt's verdict.

        :param index: index of the batch in the wave
        :param receipt: the batch's receipt
        :param own: whether the receipt was committed for this attempt and these staged files, not for an earlier
            attempt
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

    def discard(self, index: int, files: Iterable[Location]) -> None:
        """Remove the staged files of a batch, unless some commit of this wave contained them, even one that failed.

        :param index: index of the batch in the wave
        :param files: the files
        """
        if index not in self.attempted:
            remove_files(files)

    def not_attempted(self, index: int) -> None:
        """Record that a waiting batch was not attempted, since an earlier batch of its partition failed.

        :param index: index of the batch in the wave
        """
        self.waiting.pop(index)
        self._outcomes[index] = replace(
            self._outcomes[index], outcome=AttemptOutcome.NOT_ATTEMPTED, dead_letters={}, staged=None
        )

    def failed(self, index: int, error: CkptError) -> None:
        """Record that a waiting batch failed.

        If a commit that contained the batch takes effect after all, the next run finds its receipt.

        :param index: index of the batch in the wave
        :param error: the error
        """
        self.waiting.pop(index)
        self._outcomes[index] = replace(
            self._outcomes[index], outcome=AttemptOutcome.FAILED, error=error.info, dead_letters={}, staged=None
        )
