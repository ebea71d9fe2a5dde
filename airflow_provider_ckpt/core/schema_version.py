"""Versions of a source's columns. Each begins at a position, and says how the rows from there on are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey


class ColumnState(StrEnum):
    """Treatment of a column by a version.

    - ``read``: its values are read from the source
    - ``null``: the source has no such column any more, so each row has null for it
    - ``left_out``: the source has it, but it is not read
    - ``refused``: it is read, and a row with a value in it becomes a dead letter
    """

    READ = "read"
    NULL = "null"
    LEFT_OUT = "left_out"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column that the source has now.

    :param name: the column's name
    :param number: number by which the source knows the column even if it is renamed
    :param type: the column's type in the source's SQL, with length or precision
    :param required: whether the column takes no null and has no default
    """

    name: str
    number: int
    type: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class VersionColumn:
    """A column of a version.

    :param name: the column's name in the source, which is also its name in the target
    :param number: number by which the source knows the column
    :param type: the column's type in the source's SQL
    :param state: how the version treats it
    :param kept: for a refused column, the type that the target's column of its name has; empty if the target has none
    :param added_again: for a refused column, whether it was dropped and then added again, so that it counts as new
        although the target has a column of its name
    """

    name: str
    number: int
    type: str
    state: ColumnState = ColumnState.READ
    kept: str = ""
    added_again: bool = False

    @property
    def refused_by(self) -> str:
        """Key of the policy that refuses the column, if it is refused."""
        return "other_type" if self.kept and not self.added_again else "new_column"

    def to_json(self) -> list[Any]:
        """Return the column as a JSON-ready list; :meth:`from_json` is the inverse."""
        refusal = [self.kept, *([True] if self.added_again else [])] if self.kept else []
        return [self.name, self.number, self.type, self.state.value, *refusal]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> VersionColumn:
        """Restore a column from the output of :meth:`to_json`."""
        return cls(str(data[0]), int(data[1]), str(data[2]), ColumnState(data[3]), *data[4:])


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of the columns of a source partition.

    :param number: number of the version, from 1
    :param partition: id of the source partition
    :param generation: generation in which the version began
    :param position: position from which batches are planned under this version
    :param columns: the columns
    :param decision: what was decided, one sentence for each changed column
    :param replanned: batches below ``position`` that were planned under an earlier version and are read under this one
    """

    number: int
    partition: str
    generation: int
    position: int
    columns: Sequence[VersionColumn]
    decision: Sequence[str] = ()
    replanned: Sequence[BatchKey] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of the source's columns of this version."""
        return fingerprint(column for column in self.columns if column.state is not ColumnState.NULL)

    @property
    def followed(self) -> str:
        """Digest of the source's columns that the version does not refuse, with which acceptances are compared."""
        gone = (ColumnState.NULL, ColumnState.REFUSED)
        return fingerprint(column for column in self.columns if column.state not in gone)

    @property
    def target_columns(self) -> Sequence[SourceColumn]:
        """Columns of a target for the rows of this version, with the types that it stores.

        A column whose values are left out or refused is not among them, unless the target has one of its name and of
        the type that was kept.
        """
        kinds = [column.kept if column.state is ColumnState.REFUSED else column.type for column in self.columns]
        return [
            SourceColumn(column.name, column.number, kind)
            for column, kind in zip(self.columns, kinds, strict=True)
            if kind and column.state is not ColumnState.LEFT_OUT
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the version as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "version": self.number,
            "partition": self.partition,
            "generation": self.generation,
            "position": self.position,
            "columns": [column.to_json() for column in self.columns],
            "decision": list(self.decision),
            "replanned": [key.to_json() for key in self.replanned],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SchemaVersion:
        """Restore a version from the output of :meth:`to_json`."""
        return cls(
            int(data["version"]),
            str(data["partition"]),
            int(data["generation"]),
            int(data["position"]),
            tuple(VersionColumn.from_json(column) for column in data["columns"]),
            tuple(data["decision"]),
            tuple(BatchKey.from_json(key) for key in data["replanned"]),
        )


def fingerprint(columns: Iterable[SourceColumn | VersionColumn]) -> str:
    """Return a digest of names, numbers and types of a source's columns, whatever their order."""
    content = sorted([column.name, column.number, column.type] for column in columns)
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
