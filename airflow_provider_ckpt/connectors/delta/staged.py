"""What a lane staged of a batch, as it travels in an outcome, and the book a commit keeps of a wave's outcomes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch import AttemptOutcome, Counts, Receipt, Verdict
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave import BatchTask, Outcome

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake.transaction import AddAction


@dataclass(frozen=True, slots=True)
class DataFile:
    """A parquet file in the table's directory.

    :param name: relative to the table
    :param size: bytes
    :param modified: modification time in ms since the epoch
    :param stats: Delta's statistics, as JSON text
    """

    name: str
    size: int
    modified: int
    stats: str

    def add(self) -> AddAction:
        """The action that makes the file part of the table."""
        from deltalake.transaction import AddAction

        return AddAction(self.name, self.size, {}, self.modified, True, self.stats)


@dataclass(frozen=True)
class Staged:
    """One staged batch.

    :param file: its rows, or None if it has none
    :param letters: path of its dead letters, or None
    :param schema_text: the rows' Arrow schema, serialized, in base64; None if the batch came without columns
    """

    range: Range
    bound: int | None
    verdict: Verdict
    counts: Counts
    file: DataFile | None
    letters: str | None
    schema_text: str | None

    @classmethod
    def of(cls, outcome: Outcome) -> Staged:
        """What the outcome says was staged."""
        data: Mapping[str, Any] = outcome.staged or {}
        return cls(
            Range(*data["range"]),
            data["bound"],
            Verdict(data["verdict"]),
            Counts(**data["counts"]),
            DataFile(**data["file"]) if data["file"] else None,
            data["letters"],
            data["schema"],
        )

    def outcome(self, task: BatchTask, letters: Mapping[str, int]) -> Outcome:
        """The outcome that carries this; :meth:`of` is its inverse."""
        data = {
            "range": [self.range.start, self.range.end],
            "bound": self.bound,
            "verdict": self.verdict.value,
            "counts": self.counts.to_json(),
            "file": asdict(self.file) if self.file else None,
            "letters": self.letters,
            "schema": self.schema_text,
        }
        return Outcome(task.key, task.attempt, AttemptOutcome.STAGED, letters=letters, staged=data)

    @property
    def name(self) -> str | None:
        """The data file's name."""
        return self.file.name if self.file else None

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The rows' Arrow schema."""
        import pyarrow as pa

        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema_text))) if self.schema_text else None

    def paths(self, table: Path, *, letters: bool = True) -> list[Path]:
        """The files that were staged, with or without the dead letters."""
        data = [table / self.file.name] if self.file else []
        return [*data, Path(self.letters)] if letters and self.letters else data


def schema_text(schema: pa.Schema) -> str:
    """An Arrow schema as JSON can carry it."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def discard(paths: Iterable[Path]) -> None:
    """Remove files that are known not to be part of any commit; best effort, since nobody reads them anyway."""
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


class StagedWave:
    """The outcomes of one wave: which still wait for their commit, and what became of the others.

    ``waiting`` is in the order of the batches' keys; ``attempted`` are those that some commit of this wave named.
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
    def schema(self) -> pa.Schema | None:
        """The columns of the first batch that has rows, else of the first that knows its columns."""
        waiting = sorted(self.waiting.values(), key=lambda staged: staged.file is None)
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
