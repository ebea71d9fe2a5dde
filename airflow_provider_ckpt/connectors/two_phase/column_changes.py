"""Compute the changes that bring a table's columns to those of a schema version: only changes that lose no value.

The functions are the same for Delta and Iceberg; :class:`ColumnRules` describes the differences of the formats. Types
of columns are given by the formats' own names, such as ``long``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_ckpt.connectors.two_phase.type_widening import is_wider
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    :param type: name of the type
    :param required: whether the column may not be null
    """

    type: str
    required: bool


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """Rules of a table format for changes of columns.

    :param table: the table, as in ``the Delta table /data/t``
    :param pipeline: name of the pipeline, for messages
    :param type_name: function that returns the name of the format's type for a Spark SQL type
    :param widening_refusal: function that receives the name of a column, its type and a wider type, and returns the
        reason why the column cannot get the wider type, for an error message; None if it can
    :param rename_refusal: the reason why the format does not rename columns, for an error message; None if it does
    """

    table: str
    pipeline: str
    type_name: Callable[[str], str]
    widening_refusal: Callable[[str, str, str], str | None]
    rename_refusal: str | None = None


def needed_changes(
    columns: Mapping[str, TableColumn], steps: Sequence[TargetStep], rules: ColumnRules
) -> Sequence[TargetStep]:
    """Return those of the given changes that a table has not made yet, in order.

    The type of a column to add or widen is given by the format's own name, not as a Spark SQL type.

    The result is empty if the table has no columns: it will get the columns of the first rows.

    :param columns: columns of the table, by name
    :param steps: the changes of the target that a schema version requires
    :param rules: rules of the format
    :raises ConfigError: if the table cannot make a change without loss
    """
    now = dict(columns)
    needed: list[TargetStep] = []
    for step in steps if columns else ():
        change = _needed(now, step, rules)
        if change is None:
            continue
        needed.append(change)
        if change.kind is StepKind.RENAME:
            now[change.type] = now.pop(change.name)
        elif change.kind is StepKind.ALLOW_NULL:
            now[change.name] = replace(now[change.name], required=False)
        else:
            required = change.name in now and now[change.name].required
            now[change.name] = TableColumn(change.type, required)
    return needed


def _needed(now: Mapping[str, TableColumn], step: TargetStep, rules: ColumnRules) -> TargetStep | None:
    """Return the change of a table by which one of its columns follows the source; None if nothing is to be changed.

    Nothing is to be changed if the column already is as required, or if the column to rename or change does not exist.

    :param now: columns of the table, by name
    :param step: the change that the schema version requires; the type in the result is one of the table format
    :param rules: the changes that the table format (Delta or Iceberg) allows
    :raises ConfigError: if the format does not allow the change, or the column's values would not fit into the new type
    """
    column = now.get(step.name)
    if step.kind is StepKind.RENAME:
        if column is None:
            return None
        _refuse_rename(now, step, rules)
        return step
    if step.kind is StepKind.ALLOW_NULL:
        return step if column is not None and column.required else None
    wanted = rules.type_name(step.spark_type)
    if column is None:
        _refuse_similar_name(now, step.name, rules)
        return TargetStep(StepKind.ADD, step.name, wanted)
    if column.type == wanted or is_wider(wanted, column.type):
        return None
    reason = (
        rules.widening_refusal(step.name, column.type, wanted)
        if is_wider(column.type, wanted)
        else "the sink changes a column only to a wider type of the same kind"
    )
    if reason is not None:
        raise ConfigError(
            f"column {step.name} of {rules.table} is {column.type}, and the source's values are {wanted} now; "
            f"{reason}. The table was not changed.",
            pipeline=rules.pipeline,
            hint=f"Give the table a column {step.name} of type {wanted}, for example by writing its rows anew, then "
            "run again; or write to a new table.",
        )
    return TargetStep(StepKind.WIDEN, step.name, wanted)


def _refuse_rename(now: Mapping[str, TableColumn], step: TargetStep, rules: ColumnRules) -> None:
    old, new = step.name, step.type
    as_new = "write schema.renamed_column: as_new, which adds a column and keeps the old one"
    if rules.rename_refusal is not None:
        raise ConfigError(
            f"column {old} of {rules.table} cannot be renamed to {new}: {rules.rename_refusal}. The table was not "
            "changed.",
            pipeline=rules.pipeline,
            hint=f"Give the table a column {new} in place of {old} by writing its rows anew, then run again; or "
            f"{as_new}.",
        )
    if new in now:
        raise ConfigError(
            f"{rules.table} has both {old} and {new}, so that {old} cannot be renamed. The table was not changed.",
            pipeline=rules.pipeline,
            hint=f"Drop or rename {new} of the table, then run again; or {as_new}.",
        )
    _refuse_similar_name({name: column for name, column in now.items() if name != old}, new, rules)


def _refuse_similar_name(now: Mapping[str, TableColumn], name: str, rules: ColumnRules) -> None:
    other = next((known for known in now if known.lower() == name.lower()), None)
    if other is not None:
        raise ConfigError(
            f"{rules.table} cannot get the column {name}, since its column {other} differs only in case. The table was "
            "not changed.",
            pipeline=rules.pipeline,
            hint=f"Rename or drop the table's column {other}, then run again.",
        )
