"""Model of the section ``schema`` of a declaration: how runs react to changes of the source's columns."""

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
"""Pattern of a part of an expression that stands for all columns, as in ``struct(*)``."""


NewColumn = Literal["evolve", "freeze", "discard", "dead_letter"]
WiderType = Literal["evolve", "freeze"]
DroppedColumn = Literal["keep", "freeze"]
RenamedColumn = Literal["freeze", "as_new", "follow"]
OtherType = Literal["freeze", "dead_letter"]


class ColumnSchemaSection(Section):
    """Reaction to changes of one column of the source; for an omitted key, the value in the section ``schema`` holds.

    The keys are those of :class:`SchemaSection`.
    """

    new_column: NewColumn | None = None
    wider_type: WiderType | None = None
    dropped_column: DroppedColumn | None = None
    renamed_column: RenamedColumn | None = None
    other_type: OtherType | None = None


class SchemaSection(Section):
    """Reaction to changes of the source's columns; ``freeze``, the default of each key, fails the run before it plans.

    :param new_column: for a new column: ``evolve`` adds it to the target, ``discard`` does not read it, ``dead_letter``
        makes each row with a value in it a dead letter
    :param wider_type: for a column whose new type has all values of the old type: ``evolve`` widens the target's column
    :param dropped_column: for a dropped column: ``keep`` delivers null for it, and the target keeps its column
    :param renamed_column: for a renamed column: ``follow`` renames the target's column, ``as_new`` treats it as a
        dropped and a new column
    :param other_type: for a column whose new type lacks values of the old type: ``dead_letter`` makes each row with a
        value in this column a dead letter
    :param columns: by column name, the keys that have another value for this column
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
        """The section as a :class:`SchemaPolicy`, the object that decides how to react to a change."""
        columns = {name: keys.model_dump(exclude_none=True) for name, keys in self.columns.items()}
        return SchemaPolicy(**self.model_dump(exclude={"columns"}), columns=columns)

    @property
    def declared(self) -> list[str]:
        """Paths of the keys that are not ``freeze``, such as ``new_column`` or ``columns.note.new_column``."""
        allowing = [key for key, value in self.model_dump(exclude={"columns"}).items() if value != "freeze"]
        for name, keys in self.columns.items():
            allowing += [f"columns.{name}.{key}" for key, value in keys.model_dump().items() if value not in _FROZEN]
        return allowing


_FROZEN = (None, "freeze")


def refuse_without_effect(pipeline: Pipeline) -> None:
    """Refuse a section ``schema`` that has no effect because of the source, the sink or the transform.

    It is also refused beside ``sink.schema_evolution: add_columns``, since both would add columns to the target.

    :param pipeline: the declaration
    :raises ValueError: if the section is refused; the message names its key, or the whole section, and the cause
    """
    schema = pipeline.schema_
    if schema is None:
        return
    for section, able in (
        (pipeline.source, pipeline.source.reports_columns),
        (pipeline.sink, pipeline.sink.changes_columns),
    ):
        if not able:
            raise ValueError(f"schema: a {section.type} {section.side} does not support it; leave it out")
    if pipeline.sink.adds_columns:
        raise ValueError("schema and sink.schema_evolution: add_columns both add columns to the target; leave one out")
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
    """Return how a pipeline uses its source's columns: as cursor, as key, and in expressions of the transform.

    An expression counts as using each column whose name occurs in its text. A Python function, or an expression such as
    ``struct(*)``, counts as using every column.

    :param pipeline: the pipeline
    :param reserved: names that no column of the target can have, such as those of control columns, in lower case
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
