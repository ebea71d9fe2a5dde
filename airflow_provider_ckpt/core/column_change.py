"""Find how the columns of a source table have changed since the current schema version: new, dropped, renamed, retyped.

``schema_change.py`` decides how a run reacts to the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_ckpt.core.schema_version import ColumnState, SourceColumn, VersionColumn


class ChangeKind(StrEnum):
    """Kind of the change of one column of the source.

    - ``new_column``, ``wider_type``, ``other_type``, ``dropped_column``, ``renamed_column``: as the keys of the section
      ``schema``; a *wider* type has all values of the old type, an *other* type lacks some
    - ``replaced_column``: the column was dropped, and another column was added under its name
    - ``exchanged_column``: the column's name now belongs to another column, which the version had under another name
    - ``admitted_column``: the column has not changed, but the policy or a user no longer refuses its values
    """

    NEW = "new_column"
    WIDER = "wider_type"
    OTHER_TYPE = "other_type"
    DROPPED = "dropped_column"
    RENAMED = "renamed_column"
    REPLACED = "replaced_column"
    EXCHANGED = "exchanged_column"
    ADMITTED = "admitted_column"


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one column of the source.

    :param kind: kind of the change
    :param name: name of the column before the change; for a new column, its only name
    :param before: the column as the current schema version has it; None for a new column
    :param after: the column as the source has it now; None for a dropped column
    """

    kind: ChangeKind
    name: str
    before: VersionColumn | None
    after: SourceColumn | None


IsWider = Callable[[str, str, str], bool]
"""Function that returns whether a column's new type has all values of its old type.

It receives the column's name, the old type and the new type.
"""


def find_changes(before: Sequence[VersionColumn], now: Sequence[SourceColumn], is_wider: IsWider) -> Sequence[Change]:
    """Return the changes between the columns of the current schema version and the columns that the source has now.

    Columns are matched by name. A renamed column keeps its number in the database: if the source has the number of a
    column under a name that the version does not have, that column was renamed, even if a new column has its old name.

    :param before: columns of the current schema version
    :param now: columns of the source
    :param is_wider: function that returns whether a new type has all values of the old type
    :return: the changes, see :class:`ChangeKind`; ``admitted_column`` is not among them, as it depends on the policy
    """
    known = {column.name: column for column in before if column.state is not ColumnState.NULL}
    numbers = {column.number for column in known.values()}
    by_name, by_number = {column.name: column for column in now}, {column.number: column for column in now}
    changes: list[Change] = []
    renamed: set[str] = set()
    given_again: set[str] = set()
    for name, old in known.items():
        new, moved = by_name.get(name), by_number.get(old.number)
        if moved is not None and moved.name not in known and (new is None or new.number not in numbers):
            renamed.add(moved.name)
            if new is not None:
                given_again.add(name)
            changes.append(Change(ChangeKind.RENAMED, name, old, moved))
        elif new is None:
            changes.append(Change(ChangeKind.DROPPED, name, old, None))
        elif new.number != old.number:
            kind = ChangeKind.EXCHANGED if new.number in numbers else ChangeKind.REPLACED
            changes.append(Change(kind, name, old, new))
        elif new.type != old.type:
            kind = ChangeKind.WIDER if is_wider(name, old.type, new.type) else ChangeKind.OTHER_TYPE
            changes.append(Change(kind, name, old, new))
    explained = renamed | (known.keys() - given_again)
    added = [column for column in now if column.name not in explained]
    return [*changes, *(Change(ChangeKind.NEW, column.name, None, column) for column in added)]


def source_changes(before: Sequence[VersionColumn], after: Sequence[VersionColumn]) -> Sequence[Change]:
    """Return the changes of the source's columns between two schema versions.

    A column whose type differs counts as ``other_type``, since it is not known whether the new type is wider.

    :param before: columns of the earlier version
    :param after: columns of the later version
    """
    present = [column for column in after if column.state is not ColumnState.NULL]
    now = [SourceColumn(column.name, column.number, column.type) for column in present]
    return find_changes(before, now, lambda *_: False)


def describe(change: Change) -> str:
    """Return the part of a message that describes a change, such as ``column note (text) is new``."""
    before, after = change.before, change.after
    old = f"column {change.name}" + (f" ({before.type})" if before is not None else "")
    match change.kind:
        case ChangeKind.NEW:
            return f"column {change.name} ({after.type if after else ''}) is new"
        case ChangeKind.DROPPED:
            return f"{old} was dropped"
        case ChangeKind.RENAMED:
            return f"{old} was renamed to {after.name if after else ''}"
        case ChangeKind.REPLACED:
            return f"{old} was dropped and added again as {after.type if after else ''}"
        case ChangeKind.EXCHANGED:
            return f"{old} was exchanged for another by renaming"
        case ChangeKind.ADMITTED:
            return f"{old} is no longer refused"
    return f"{old} has type {after.type if after else ''} now"
