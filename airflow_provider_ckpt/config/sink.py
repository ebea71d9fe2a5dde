"""Model of a pipeline's section ``sink``.

Keys and defaults are those of the table in the docs. Keys that a type of sink requires or does not support are checked
here.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from airflow_provider_ckpt.config.fields import ColumnNames, Section, require_keys


class SinkSection(Section):
    """Sink of records. The types of sink to which a key applies are given in parentheses.

    :param type: ``postgres``, ``delta``, ``iceberg``, ``kafka`` or ``files``
    :param connection: Airflow connection id
    :param table: ``schema.table`` or ``table`` (postgres); ``namespace.table`` (iceberg)
    :param path: the table's directory (delta), or the directory that receives a file for each batch (files)
    :param topic: the topic's name (kafka)
    :param format: format of the files: ``jsonl``, ``csv`` or ``parquet`` (files)
    :param files_may_go: whether readers remove files from the directory, so that a missing file is no loss (files)
    :param mode: ``append``, or ``upsert`` by ``key`` (postgres)
    :param key: the target's key columns, for ``upsert``; for kafka, the columns that become a message's key
    :param rows_may_differ: whether the target may take more or fewer rows than are sent, because a trigger, a rule or a
        policy of the target adds or removes some (postgres)
    :param may_be_emptied: whether the target may be emptied on purpose, so that missing rows are no loss (postgres,
        kafka)
    :param schema_evolution: ``refuse`` rows whose columns are not the table's, or ``add_columns`` (delta, iceberg)
    """

    type: Literal["postgres", "delta", "iceberg", "kafka", "files"]
    connection: str | None = None
    table: str | None = None
    path: str | None = None
    topic: str | None = None
    format: Literal["jsonl", "csv", "parquet"] | None = None
    files_may_go: bool = False
    mode: Literal["append", "upsert"] = "append"
    key: ColumnNames = ()
    rows_may_differ: bool = False
    may_be_emptied: bool = False
    schema_evolution: Literal["refuse", "add_columns"] = "refuse"

    @model_validator(mode="after")
    def _needs(self) -> Self:
        needs = {
            "postgres": ("connection", "table"),
            "delta": ("path",),
            "kafka": ("connection", "topic"),
            "files": ("path", "format"),
            "iceberg": ("connection", "table"),
        }
        require_keys(self, self.type, needs[self.type])
        if self.type == "iceberg" and not all((self.table or "").partition(".")):
            raise ValueError("table must be namespace.table for an iceberg sink")
        if self.mode == "upsert" and not self.key:
            raise ValueError("mode: upsert needs key, the columns that identify a row")
        if self.key and self.mode == "append" and self.type == "postgres":
            raise ValueError(
                "key requires mode: upsert, since append never replaces rows; write that, or leave key out"
            )
        if self.key and self.mode == "append" and self.type != "kafka":
            raise ValueError(f"key is not supported by the {self.type} sink, which appends rows; leave it out")
        if self.mode == "upsert" and self.type != "postgres":
            raise ValueError(f"mode: upsert is not supported by the {self.type} sink; use append")
        for key, types in (("rows_may_differ", ("postgres",)), ("may_be_emptied", ("postgres", "kafka"))):
            if getattr(self, key) and self.type not in types:
                raise ValueError(f"{key} is not supported by the {self.type} sink; leave it out")
        if self.adds_columns and self.type not in ("delta", "iceberg"):
            raise ValueError(f"schema_evolution: add_columns is not supported by the {self.type} sink; use refuse")
        return self

    @property
    def adds_columns(self) -> bool:
        """True if columns that the rows have and the table lacks are added to the table."""
        return self.schema_evolution == "add_columns"
