"""Model of the section ``schema`` of a declaration: reaction of a run to changes of the source's columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from airflow_provider_ckpt.config.fields import Section
from airflow_provider_ckpt.core.next_schema_version import ColumnUse
from airflow_provider_ckpt.core.schema_policy import SchemaPolicy

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_EVERY_COLUMN = re.compile(r"(?:^|[(,.])\s*\*\s*(?:$|[),])")
"""Part of an expression that stands for all columns, as in ``struct(*)``."""


NewColumn = Literal["evolve", "freeze", "discard", "dead_letter"]
WiderType = Literal["evolve", "freeze"]
DroppedColumn = Literal["keep", "freeze"]
RenamedColumn = Literal["freeze", "as_new", "follow"]
OtherType = Literal["freeze", "dead_letter"]


class ColumnSchemaSection(Section):
    """Reaction to changes of one column of the source; a key that is left out has the value of the section ``schema``.

    The keys are those of :class:`SchemaSection`.
    """

    new_column: NewColumn | None = None
    wider_type: WiderType | None = None
    dropped_column: DroppedColumn | None = None
    renamed_column: RenamedColumn | None = None
    other_type: OtherType | None = None


class SchemaSection(Section):
    """Reaction to changes of the source's columns; by default, each of them ends the run before anything is sent.

    :param new_column: ``evolve`` adds it to the target, ``discard`` does not read it, ``dead_letter`` rejects each row
        with a value in it, ``freeze`` fails the run
    :param wider_type: for a type that has all values of the old one: ``evolve`` widens the target's column
    :param dropped_column: ``keep`` delivers null for it from here on, and the target keeps its column
    :param renamed_column: ``as_new`` treats it as a dropped and a new column, ``follow`` renames the target's column
    :param other_type: for a type that lacks values of the old one: ``dead_letter`` rejects each row with a value in it
    :param columns: keys that have another value for a column of this name
    """

    new_column: NewColumn = "freeze"
    wider_type: WiderType = "freeze"
    dropped_column: DroppedColumn = "freeze"
    renamed_column: RenamedColumn = "freeze"
    other_type: OtherType = "freeze"
    columns: dict[str, ColumnSchemaSection] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _as_new_needs_both(self) -> Self:
        for name in ("", *self.columns):
            policy = self.policy.of(name)
            needed = (self.new_column, policy.new_column, policy.dropped_column)
            if policy.renamed_column == "as_new" and "freeze" in needed:
                place = f"columns.{name}." if name else ""
                raise ValueError(
                    f"{place}renamed_column: as_new needs dropped_column: keep, and a new_column that is not freeze"
                )
        return self

    @property
    def policy(self) -> SchemaPolicy:
        """The policy that the section declares."""
        columns = {name: keys.model_dump(exclude_none=True) for name, keys in self.columns.items()}
        return SchemaPolicy(**self.model_dump(exclude={"columns"}), columns=columns)

    @property
    def declared(self) -> list[str]:
        """Keys that allow a change, such as ``new_column`` or ``columns.note.new_column``."""
        allowing = [key for key, value in self.model_dump(exclude={"columns"}).items() if value != "freeze"]
        for name, keys in self.columns.items():
            allowing += [f"columns.{name}.{key}" for key, value in keys.model_dump().items() if value not in _FROZEN]
        return allowing


_FROZEN = (None, "freeze")


def refuse_without_effect(pipeline: Pipeline) -> None:
    """Raise ValueError for a section ``schema`` that source, sink or transform leave without effect."""
    schema = pipeline.schema_
    if schema is None:
        return
    for section, able in (
        (pipeline.source, pipeline.source.reports_columns),
        (pipeline.sink, pipeline.sink.changes_columns),
    ):
        if not able:
            raise ValueError(f"schema: a {section.type} {section.side} does not support it; leave it out")
    declared = schema.declared
    transform = pipeline.transform
    if declared and (transform.select or transform.python):
        chooser = "select" if transform.select else "python"
        raise ValueError(
            f"schema.{declared[0]} has no effect, since transform.{chooser} chooses the target's columns; leave it out"
        )
    fixed = [key for key in declared if key.rpartition(".")[2] not in ("wider_type", "other_type")]
    if fixed and pipeline.source.column_names:
        raise ValueError(f"schema.{fixed[0]} has no effect, since source.columns names the columns; leave one out")


def column_use(pipeline: Pipeline, reserved: frozenset[str]) -> ColumnUse:
    """Return the use that a pipeline makes of its source's columns.

    A function may use each column. An expression uses each column whose name occurs in it.

    :param pipeline: the pipeline
    :param reserved: names that no column of the target can have, in lower case
    """
    transform = pipeline.transform
    texts = [*filter(None, [transform.where]), *(transform.select or {}).values()]
    uses_all = bool(transform.python) or any(_EVERY_COLUMN.search(text) for text in texts)

    def used(name: str) -> bool:
        pattern = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
        return uses_all or any(pattern.search(text) for text in texts)

    return ColumnUse(
        (*pipeline.source.position_columns, *pipeline.sink.key_columns),
        bool(transform.select or transform.python),
        used,
        reserved,
    )
