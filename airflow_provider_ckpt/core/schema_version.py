"""Describe a schema version: the columns of a source partition from one position on, and how they are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey


class ColumnState(StrEnum):
    """Treatment of a column by a schema version.

    - ``read``: its values are read from the source
    - ``null``: the source has no such column any more, so each row has null for it
    - ``left_out``: the source has the column, but it is not read
    - ``refused``: the column is read, and a row with a value in it becomes a dead letter
    """

    READ = "read"
    NULL = "null"
    LEFT_OUT = "left_out"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column that the source has now.

    :param name: the column's name
    :param number: number that identifies the column in the source, even after it was renamed
    :param type: the column's type in the source's SQL, with length or precision
    :param required: whether the column takes no null and has no default
    """

    name: str
    number: int
    type: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class VersionColumn:
    """A column of a schema version.

    :param name: the column's name in the source, which is also its name in the target
    :param number: number that identifies the column in the source, even after it was renamed
    :param type: the column's type in the source's SQL
    :param state: how the version treats the column
    :param kept: for a refused column, the type of the target's column of this name; empty if the target has none
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
        """Key of the section ``schema`` because of which the column is refused: ``new_column`` or ``other_type``.

        The value has a meaning only for a refused column.
        """
        return "other_type" if self.kept and not self.added_again else "new_column"

    def gets_back_type(self, kind: str) -> bool:
        """Return whether a new type ends the refusal of the column: it was refused for its type, and now fits again.

        A type fits if it is that of the target's column.

        :param kind: the type that the column has in the source now
        """
        return self.state is ColumnState.REFUSED and self.refused_by == "other_type" and kind == self.kept

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
    """A schema version: the columns of a source partition from one position on.

    :param number: number of the version, from 1
    :param partition: id of the source partition
    :param generation: generation in which the version began
    :param position: position from which batches are planned under this version
    :param columns: the columns
    :param decision: the decision about each changed column, as a sentence
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
        """Digest of the columns that the source had when the version began; see :func:`fingerprint`."""
        return fingerprint(column for column in self.columns if column.state is not ColumnState.NULL)

    @property
    def followed(self) -> str:
        """Digest of the source's columns that the version reads or leaves out, but does not refuse.

        A run compares this digest with the one in a user's acceptance, to find out whether the version applies all
        accepted columns.
        """
        gone = (ColumnState.NULL, ColumnState.REFUSED)
        return fingerprint(column for column in self.columns if column.state not in gone)

    @property
    def target_columns(self) -> Sequence[SourceColumn]:
        """Columns that a target needs for the rows of this version, with the types that they must have there.

        Columns that are left out are not among them. A refused column is among them only if the target has a column of
        its name, with that column's type.
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
    """Return a SHA-256 digest of the names, numbers and types of columns; their order does not matter."""
    content = sorted([column.name, column.number, column.type] for column in columns)
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
