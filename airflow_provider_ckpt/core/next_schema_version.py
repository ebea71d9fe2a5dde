"""Compute the next schema version from the allowed changes of a source's columns, and the changes of the target table.

``schema_change.py`` decides which changes are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from airflow_provider_ckpt.core.column_change import Change, ChangeKind, describe
from airflow_provider_ckpt.core.schema_policy import SchemaPolicy
from airflow_provider_ckpt.core.schema_version import ColumnState, SourceColumn, VersionColumn

CAN_WAIT = (ChangeKind.NEW, ChangeKind.ADMITTED)
"""Kinds of changes that wait until all planned batches are resolved: ``new_column`` and ``admitted_column``.

These changes can wait, since the batches that were planned before can still be read without the column.
"""

_REFUSED = "each row with a value in it becomes a dead letter"


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """Roles of a source's columns in a pipeline, beyond being copied to the target.

    :param positions: names of the cursor column and the key columns; of their changes, only a wider type is allowed
    :param chosen: whether ``transform.select`` or a Python function determines the columns of the target, so that no
        column is added to the target
    :param used: function that returns whether an expression or function of the transform uses a column, given its name
    :param reserved: names that no column of the target can have, such as those of control columns, in lower case
    """

    positions: Collection[str] = ()
    chosen: bool = False
    used: Callable[[str], bool] = field(default=lambda _: False)
    reserved: Collection[str] = ()


class StepKind(StrEnum):
    """Kind of a change of the target table.

    - ``add``: add a column
    - ``widen``: change a column's type so that it stores all values of the source's type
    - ``allow_null``: drop the constraint NOT NULL of a column
    - ``rename``: rename a column
    """

    ADD = "add"
    WIDEN = "widen"
    ALLOW_NULL = "allow_null"
    RENAME = "rename"


@dataclass(frozen=True, slots=True)
class TargetStep:
    """Change of one column of the target table.

    :param kind: kind of the change
    :param name: name of the column; for a rename, its old name
    :param type: for ``add`` and ``widen``, the source's type that the column must store; for ``rename``, the column's
        new name; empty for ``allow_null``
    :param spark_type: for ``add`` and ``widen``, the Spark SQL type as which the column's values are read; the run sets
        it, since it depends on the source's connector
    """

    kind: StepKind
    name: str
    type: str = ""
    spark_type: str = ""


@dataclass(frozen=True, slots=True)
class NextVersion:
    """Decision to begin a new schema version now; batches that are planned later are read under this version.

    :param columns: the columns of the version
    :param steps: changes of the target, to be applied before any batch of the version is sent
    :param decision: the decision about each change as a sentence, such as ``column note (text) is new: it is left out``
    """

    columns: Sequence[VersionColumn]
    steps: Sequence[TargetStep]
    decision: Sequence[str]


def reads_new(change: Change, policy: SchemaPolicy, use: ColumnUse) -> bool:
    """Return whether the pipeline reads the values of a new column, or of a column that is no longer refused.

    :param change: a change of the kind ``new_column`` or ``admitted_column``
    :param policy: the policy of schema changes
    :param use: use that the pipeline makes of the columns; if the transform determines the target's columns, the values
        are not read
    """
    was_read = change.before is not None and change.before.refused_by == "other_type"
    return not use.chosen and (was_read or policy.of(change.name).new_column != "discard")


def next_version(
    before: Sequence[VersionColumn], changes: Sequence[Change], policy: SchemaPolicy, use: ColumnUse
) -> NextVersion:
    """Return the schema version that results from applying allowed changes to the current version.

    :param before: columns of the current version
    :param changes: the changes; a rename that the policy does not follow is given as a dropped and a new column
    :param policy: the pipeline's policy of schema changes
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
    """Apply one change to the columns of a version.

    :param columns: the columns by name, which are changed
    :param change: the change
    :param policy: the pipeline's policy of schema changes
    :param use: use that the pipeline makes of the columns
    :return: the part of the message that tells the decision, such as ``it is left out``, and the changes of the target
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
    """Return whether the target has no column for a column of the version.

    This is so if the version does not read the column, or if the transform determines the target's columns.

    :param column: the column of the version
    :param use: use that the pipeline makes of the columns
    """
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
    """Apply the change of a new column, or of a column that is no longer refused, to the columns of a version.

    :param columns: the columns by name, which are changed
    :param old: the version's column of the same name; None if there is none
    :param change: the change
    :param policy: the pipeline's policy of schema changes
    :param use: use that the pipeline makes of the columns
    :return: the part of the message that tells the decision, such as ``the target gets it``, and the changes of the
        target
    """
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
    restored = old.gets_back_type(after.type)
    if restored:
        new = replace(new, state=ColumnState.READ, kept="")
    renamed = {new.name if key == old.name else key: new if key == old.name else item for key, item in columns.items()}
    columns.clear()
    columns.update(renamed)
    if kept_out:
        return "the target does not have it", []
    steps = [TargetStep(StepKind.RENAME, old.name, new.name)]
    if new.state is not ColumnState.REFUSED:
        steps.append(TargetStep(StepKind.WIDEN, new.name, new.type))
    return f"the target's column is renamed{', and it is read again' if restored else ''}", steps


def _alter(
    columns: dict[str, VersionColumn], old: VersionColumn, change: Change, policy: SchemaPolicy, use: ColumnUse
) -> tuple[str, list[TargetStep]]:
    """Apply the change of a column's type or identity to the columns of a version.

    The column's values are refused from now on if the policy demands that for the new type.

    :param columns: the columns by name, which are changed
    :param old: the version's column
    :param change: the change: another type, or another column under the same name
    :param policy: the policy for this column
    :param use: use that the pipeline makes of the columns
    :return: the part of the message that tells the decision, such as ``the target keeps its column``, and the changes
        of the target
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
