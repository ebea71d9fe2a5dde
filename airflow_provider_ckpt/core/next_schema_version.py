"""Apply allowed changes of a source's columns: the next schema version, and the changes of the target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_provider_ckpt.core.column_change import Change, ChangeKind, describe
from airflow_provider_ckpt.core.schema_policy import SchemaPolicy
from airflow_provider_ckpt.core.schema_version import ColumnState, SourceColumn, VersionColumn

CAN_WAIT = (ChangeKind.NEW, ChangeKind.ADMITTED)
"""Changes that wait for planned batches, because these batches can still be read as they were planned."""

_REFUSED = "each row with a value in it becomes a dead letter"


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """Use that the rest of a pipeline makes of the source's columns.

    :param positions: the cursor and the columns of keys, which can neither vanish nor get another name
    :param chosen: whether ``transform.select`` or a function chooses the columns of the target
    :param used: function that returns whether an expression or function uses a column
    :param reserved: names that no column of the target can have, in lower case
    """

    positions: Collection[str] = ()
    chosen: bool = False
    used: Callable[[str], bool] = field(default=lambda _: False)
    reserved: Collection[str] = ()


class StepKind(StrEnum):
    """Kind of a change of the target."""

    ADD = "add"
    WIDEN = "widen"
    ALLOW_NULL = "allow_null"
    RENAME = "rename"


@dataclass(frozen=True, slots=True)
class TargetStep:
    """Change of one column of the target.

    :param kind: kind of the change
    :param name: name of the column; for a rename, its name before
    :param type: the source's type that the column must store; for a rename, its new name; empty for ``allow_null``
    """

    kind: StepKind
    name: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class NextVersion:
    """Decision to begin a version now.

    :param columns: its columns
    :param steps: changes of the target, to be applied before any batch of the version is sent
    :param decision: what was decided, one sentence for each change
    """

    columns: Sequence[VersionColumn]
    steps: Sequence[TargetStep]
    decision: Sequence[str]


def reads_new(change: Change, policy: SchemaPolicy, use: ColumnUse) -> bool:
    """Return whether the values of a new or an admitted column are read.

    :param change: the column's change
    :param policy: the policy of schema changes
    :param use: use of the columns by the pipeline; if it names its columns itself, none is added
    """
    was_read = change.before is not None and change.before.refused_by == "other_type"
    return not use.chosen and (was_read or policy.of(change.name).new_column != "discard")


def next_version(
    before: Sequence[VersionColumn], changes: Sequence[Change], policy: SchemaPolicy, use: ColumnUse
) -> NextVersion:
    """Return the version that follows a version's columns by changes that are allowed.

    :param before: columns of the current version
    :param changes: the changes, of which none is a rename that is not followed
    :param policy: the policy in force
    :param use: use that the pipeline makes of the columns
    """
    columns: dict[str, VersionColumn] = {column.name: column for column in before}
    steps: list[TargetStep] = []
    decision: list[str] = []
    for change in changes:
        outcome, new_steps = _apply(columns, change, policy, use)
        steps += new_steps
        decision.append(f"{describe(change)}: {outcome}")
    return NextVersion(tuple(columns.values()), tuple(steps), tuple(decision))


def _apply(
    columns: dict[str, VersionColumn], change: Change, policy: SchemaPolicy, use: ColumnUse
) -> tuple[str, list[TargetStep]]:
    """Change the columns of a version as one change demands.

    :param columns: the columns by name, which are changed
    :param change: the change
    :param policy: the pipeline's policy
    :param use: use that the pipeline makes of the columns
    :return: what the change comes to, and the changes of the target
    """
    after, old = change.after, columns.get(change.name)
    if after is None:
        assert old is not None
        return _drop(columns, old, use)
    if change.kind in CAN_WAIT:
        return _add(columns, old, change, policy, use)
    assert old is not None
    if change.kind is ChangeKind.RENAMED:
        return _rename(columns, old, after, kept_out=_is_kept_out(old, use))
    return _alter(columns, old, change, policy.of(change.name), use)


def _is_kept_out(column: VersionColumn, use: ColumnUse) -> bool:
    """Return whether the target has no column of this name, because it is left out or the transform chooses."""
    refused = column.state is ColumnState.REFUSED and not column.kept
    return use.chosen or refused or column.state is ColumnState.LEFT_OUT


def _drop(columns: dict[str, VersionColumn], old: VersionColumn, use: ColumnUse) -> tuple[str, list[TargetStep]]:
    kept_out = _is_kept_out(old, use)
    if kept_out and not use.used(old.name):
        del columns[old.name]
        return "it is not used", []
    columns[old.name] = VersionColumn(old.name, old.number, old.kept or old.type, ColumnState.NULL)
    return "rows have null for it from here on", [] if kept_out else [TargetStep(StepKind.ALLOW_NULL, old.name)]


def _add(
    columns: dict[str, VersionColumn],
    old: VersionColumn | None,
    change: Change,
    policy: SchemaPolicy,
    use: ColumnUse,
) -> tuple[str, list[TargetStep]]:
    """Add a new column, or one that was refused; ``old`` is the version's column of its name."""
    after, name = change.after, change.name
    assert after is not None
    restored = old is not None and (old.state is ColumnState.NULL or bool(old.kept))
    if not reads_new(change, policy, use):
        columns[name] = VersionColumn(name, after.number, after.type, ColumnState.LEFT_OUT)
        return "it is left out", []
    if change.kind is ChangeKind.NEW and policy.of(name).new_column == "dead_letter":
        kept = old.type if old is not None else ""
        columns[name] = VersionColumn(name, after.number, after.type, ColumnState.REFUSED, kept, bool(kept))
        return _REFUSED, []
    columns[name] = VersionColumn(name, after.number, after.type)
    note = ", without NOT NULL" if after.required else ""
    return "it is read again" if restored else f"the target gets it{note}", [TargetStep(StepKind.ADD, name, after.type)]


def _rename(
    columns: dict[str, VersionColumn], old: VersionColumn, after: SourceColumn, *, kept_out: bool
) -> tuple[str, list[TargetStep]]:
    new = replace(old, name=after.name, number=after.number, type=after.type)
    renamed = {new.name if key == old.name else key: new if key == old.name else item for key, item in columns.items()}
    columns.clear()
    columns.update(renamed)
    if kept_out:
        return "the target does not have it", []
    steps = [TargetStep(StepKind.RENAME, old.name, new.name)]
    if new.state is not ColumnState.REFUSED:
        steps.append(TargetStep(StepKind.WIDEN, new.name, new.type))
    return "the target's column is renamed", steps


def _alter(
    columns: dict[str, VersionColumn], old: VersionColumn, change: Change, policy: SchemaPolicy, use: ColumnUse
) -> tuple[str, list[TargetStep]]:
    """Enter a column's new type or source in ``columns``; return the decision as a clause, and the target's steps.

    The column's values are refused from now on if the policy demands that for the new type.
    """
    after, name = change.after, change.name
    assert after is not None
    new = replace(old, number=after.number, type=after.type)
    columns[name] = new
    if old.state is ColumnState.REFUSED and old.refused_by == "new_column":
        return _REFUSED, []
    if _is_kept_out(old, use):
        return "the transform gets it" if use.used(name) else "it is not used", []
    refuses = change.kind is ChangeKind.OTHER_TYPE and policy.other_type == "dead_letter"
    if refuses or (old.kept and policy.other_type != "evolve"):
        kept = old.kept or old.type
        if after.type != kept:
            columns[name] = replace(new, state=ColumnState.REFUSED, kept=kept)
            return _REFUSED, []
    columns[name] = replace(new, state=ColumnState.READ, kept="")
    if after.type == old.kept:
        return "it is read again", []
    widen = TargetStep(StepKind.WIDEN, name, after.type)
    if change.kind in (ChangeKind.REPLACED, ChangeKind.EXCHANGED):
        return "the target keeps its column", [widen, TargetStep(StepKind.ALLOW_NULL, name)]
    if change.kind is ChangeKind.OTHER_TYPE:
        return "the target's column has to store all values of the type", [widen]
    return "the target's column is widened", [widen]
