"""Decide how a run reacts to changed source columns: apply the changes, wait for planned batches, or plan nothing.

The functions are pure. ``next_schema_version.py`` computes the effect of the applied changes on the target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.core.column_change import Change, ChangeKind, IsWider, describe, find_changes
from airflow_provider_ckpt.core.next_schema_version import CAN_WAIT, ColumnUse, NextVersion, next_version, reads_new
from airflow_provider_ckpt.core.schema_policy import SchemaPolicy
from airflow_provider_ckpt.core.schema_version import ColumnState, SourceColumn, VersionColumn, fingerprint


@dataclass(frozen=True, slots=True)
class Frozen:
    """Decision that the run must not plan, because a change of the columns is not allowed.

    :param reasons: for each such change, the part of an error message that describes it, such as ``column note (text)
        is new, and schema.new_column is freeze``
    """

    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Decision to plan nothing until all planned batches are resolved.

    :param changes: the changes that are applied after that
    """

    changes: Sequence[Change]


def decide(
    before: Sequence[VersionColumn],
    now: Sequence[SourceColumn],
    policy: SchemaPolicy,
    use: ColumnUse,
    is_wider: IsWider,
    *,
    unresolved: bool,
    accepted: bool = False,
) -> NextVersion | Waiting | Frozen | None:
    """Decide how a run reacts to the source's columns before it plans.

    A new column, or one that is no longer refused, is applied only when every planned batch is resolved. Any other
    change is applied at once: planned batches can no longer be read with the former columns, so they are read under the
    new schema version.

    :param before: columns of the current schema version
    :param now: columns of the source
    :param policy: the pipeline's policy of schema changes
    :param use: use that the pipeline makes of the columns
    :param is_wider: function that returns whether a new type has all values of the old type
    :param unresolved: whether any planned batch has no verdict yet
    :param accepted: whether a user has accepted the source's columns, so that changes are applied that the policy
        freezes; a change that no target can follow is :class:`Frozen` nevertheless
    :return: the version to begin, :class:`Waiting`, or :class:`Frozen`; None if no column has changed
    """
    policy = policy.accepting() if accepted else policy
    if is_followed(before, now, policy):
        return None
    changes = [*find_changes(before, now, is_wider), *_admitted(before, now, policy)]
    if accepted:
        reasons = [reason for change in changes for reason in _final_reasons(change, use)]
    else:
        reasons = [reason for change in changes for reason in _freeze_reasons(change, policy, use, is_wider)]
    reasons += _name_reasons(before, now, changes, use)
    if reasons:
        return Frozen(reasons)
    parts = [part for change in changes for part in _split_rename(change, policy.of(change.name), use)]
    waiting = [part for part in parts if unresolved and part.kind in CAN_WAIT and reads_new(part, policy, use)]
    applied = [part for part in parts if part not in waiting]
    if waiting and not applied:
        return Waiting(waiting)
    return next_version(before, applied, policy, use)


def is_followed(before: Sequence[VersionColumn], now: Sequence[SourceColumn], policy: SchemaPolicy) -> bool:
    """Return whether a schema version fits the source's columns and the policy, so that no new version is needed.

    This is so if the version has exactly the source's columns, and the policy still refuses each column that the
    version refuses. A refused column makes each row with a value in it a dead letter.

    :param before: columns of the version
    :param now: columns of the source
    :param policy: the pipeline's policy of schema changes
    """
    same = fingerprint(column for column in before if column.state is not ColumnState.NULL) == fingerprint(now)
    return same and not _admitted(before, now, policy)


def _admitted(before: Sequence[VersionColumn], now: Sequence[SourceColumn], policy: SchemaPolicy) -> list[Change]:
    """Return a change for each refused column that is unchanged in the source and that the policy no longer refuses.

    A refused column makes each row with a value in it a dead letter.

    :param before: columns of the current schema version
    :param now: columns of the source
    :param policy: the pipeline's policy of schema changes
    """
    present = {(column.name, column.number, column.type): column for column in now}
    return [
        Change(ChangeKind.ADMITTED, column.name, column, after)
        for column in before
        if column.state is ColumnState.REFUSED
        and (after := present.get((column.name, column.number, column.type))) is not None
        and _admits(policy.of(column.name), column)
    ]


def _admits(policy: SchemaPolicy, column: VersionColumn) -> bool:
    """Return whether the policy for a refused column now allows its values to be read or left out."""
    return policy.value(column.refused_by) in ("evolve", "discard")


def _freeze_reasons(change: Change, policy: SchemaPolicy, use: ColumnUse, is_wider: IsWider) -> list[str]:
    """Return the reasons why the policy does not allow a change of a column; empty if it is allowed.

    A reason is a part of an error message, such as ``column note (text) was dropped, and schema.dropped_column is
    freeze``.

    :param change: the change
    :param policy: the pipeline's policy of schema changes
    :param use: use that the pipeline makes of the columns
    :param is_wider: function that returns whether a new type has all values of the old type
    """
    if change.kind is ChangeKind.ADMITTED:
        return []
    text = describe(change)
    if _moves_positions(change, use):
        return [f"{text}; it is the cursor or part of a key"]
    if change.kind is not ChangeKind.NEW and use.used(change.name):
        return [f"{text}; the transform uses it"]
    if use.chosen:
        return []
    if change.kind is ChangeKind.EXCHANGED:
        return [f"{text}; its values now belong to another column"]
    own = policy.of(change.name)
    keys = _keys(change, own, is_wider)
    if ChangeKind.OTHER_TYPE in keys and (change.kind is not ChangeKind.OTHER_TYPE or own.other_type == "freeze"):
        return [f"{text}; the new type does not have all values of the old type"]
    new_name = change.name if change.after is None else change.after.name
    names = {key: new_name if key == ChangeKind.NEW else change.name for key in keys}
    return [
        f"{text}, and {policy.path(key, name)} is freeze"
        for key, name in names.items()
        if policy.of(name).value(key) == "freeze"
    ]


def _final_reasons(change: Change, use: ColumnUse) -> list[str]:
    """Return the reasons why a change cannot be applied even if a user accepts it; empty if it can.

    A reason is a part of an error message, such as ``column id (integer) was dropped; it is the cursor or part of a
    key``.

    :param change: the change
    :param use: use that the pipeline makes of the columns
    """
    if _moves_positions(change, use):
        return [f"{describe(change)}; it is the cursor or part of a key"]
    if change.kind is ChangeKind.RENAMED and use.used(change.name):
        return [f"{describe(change)}; the transform uses it under its old name"]
    return []


def _moves_positions(change: Change, use: ColumnUse) -> bool:
    """Return whether a change may give the cursor or a key other values than before; such a change is never applied.

    :param change: the change
    :param use: use that the pipeline makes of the columns
    """
    return change.name in use.positions and change.kind not in (*CAN_WAIT, ChangeKind.WIDER)


def _keys(change: Change, policy: SchemaPolicy, is_wider: IsWider) -> list[str]:
    """Return the keys of the section ``schema`` that must all allow a change, such as ``new_column`` for a new column.

    A rename needs ``renamed_column`` and, unless that is ``follow``, the keys of a dropped and of a new column. A
    rename that also changes the type needs a key for types too, except for a refused column whose new type is that of
    the target's column.

    :param change: the change
    :param policy: the policy for this column
    :param is_wider: function that returns whether a new type has all values of the old type
    """
    before, after = change.before, change.after
    follows = change.kind is ChangeKind.RENAMED and policy.renamed_column == "follow"
    keys = [] if change.kind is ChangeKind.REPLACED else [change.kind]
    if change.kind in (ChangeKind.REPLACED, ChangeKind.RENAMED) and not follows:
        keys += [ChangeKind.DROPPED, ChangeKind.NEW]
    keeps_column = change.kind is ChangeKind.REPLACED or follows
    if before is not None and after is not None and follows and before.gets_back_type(after.type):
        return [key.value for key in keys]
    if keeps_column and before is not None and after is not None and before.type != after.type:
        keys.append(ChangeKind.WIDER if is_wider(change.name, before.type, after.type) else ChangeKind.OTHER_TYPE)
    return [key.value for key in keys]


def _name_reasons(
    before: Sequence[VersionColumn], now: Sequence[SourceColumn], changes: Sequence[Change], use: ColumnUse
) -> list[str]:
    """Return the reasons why new names of columns cannot be used in the target; empty if all can be used.

    A reason is a part of an error message, such as ``column note was renamed to text, which the target has already``.

    :param before: columns of the current schema version
    :param now: columns of the source
    :param changes: the changes between them
    :param use: use that the pipeline makes of the columns, with the reserved names
    """
    forms = Counter(name.lower() for name in {*(column.name for column in before), *(column.name for column in now)})
    reasons = []
    for change in changes:
        if change.after is None or change.kind not in (ChangeKind.NEW, ChangeKind.RENAMED):
            continue
        name = change.after.name
        if change.kind is ChangeKind.RENAMED and name in {column.name for column in before}:
            reasons.append(f"column {change.name} was renamed to {name}, which the target has already")
        elif name.lower() in use.reserved:
            reasons.append(f"column {name} has the name of a control column")
        elif forms[name.lower()] > 1:
            reasons.append(f"column {name} differs from another only in case, which Spark does not distinguish")
    return reasons


def _split_rename(change: Change, policy: SchemaPolicy, use: ColumnUse) -> list[Change]:
    """Return a rename as two changes, a dropped and a new column, and any other change as it is.

    A rename with ``renamed_column: follow`` stays one change, unless the transform chooses the target's columns.

    :param change: the change
    :param policy: the policy for this column
    :param use: use that the pipeline makes of the columns
    """
    if change.kind is not ChangeKind.RENAMED or (policy.renamed_column == "follow" and not use.chosen):
        return [change]
    assert change.after is not None
    return [
        Change(ChangeKind.DROPPED, change.name, change.before, None),
        Change(ChangeKind.NEW, change.after.name, None, change.after),
    ]
