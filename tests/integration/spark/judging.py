"""Send a few records through the transform, and return the verdict and the values of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.kafka.client import COLUMNS
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.transform import apply, original_columns
from airflow_provider_ckpt.spark.transform.decode import flat_json_decoder
from airflow_provider_ckpt.spark.transform.projection import parse_schema

CONTROL = f"{c.BATCH} bigint, __pos bigint, {c.MARKER} string"
MARK = "the end"
DELIVERED = None


@dataclass(frozen=True)
class Judged:
    """The outcome of one record.

    :param verdict: None for one to deliver
    :param row: its output columns
    """

    verdict: str | None
    message: str | None
    original: Mapping[str, Any] | None
    row: Mapping[str, Any]


class Transform:
    """A transform under test.

    :param keys: of the pipeline's ``transform``
    :param error_handling: of the pipeline
    :param table: DDL of a row source's columns; without it the source gives raw records
    :param messages: whether raw records are Kafka's messages, with key, headers and timestamp
    :param told: whether the reader has decoded plain records
    """

    def __init__(
        self,
        spark: SparkSession,
        keys: Mapping[str, Any],
        *,
        error_handling: Mapping[str, Any] | None = None,
        table: str | None = None,
        messages: bool = False,
        told: bool = False,
    ) -> None:
        self._spark = spark
        self._raw = table is None
        self._told = told
        self._ddl = table or "value binary"
        source: dict[str, str] = {"type": "files", "path": "/in"}
        if table:
            source = {"type": "postgres", "connection": "c", "table": "t", "cursor": "id"}
        if messages:
            self._ddl = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
            source = {"type": "kafka", "connection": "c", "topic": "t"}
        self._pipeline = Pipeline.model_validate(
            {
                "name": "judged",
                "source": source,
                "transform": dict(keys),
                "sink": {"type": "delta", "path": "/out"},
                "error_handling": dict(error_handling or {}),
            }
        )

    def plan(self, records: Sequence[Sequence[Any]]) -> DataFrame:
        """The transform over these rows, and a batch's marker behind them; nothing is evaluated yet."""
        fields = parse_schema(self._spark, self._ddl, "judged").fields
        told: list[tuple[Any, ...]] = [()] * len(records)
        ddl = CONTROL
        if self._told:
            plain = flat_json_decoder(self._spark, self._pipeline)
            assert plain is not None
            decoded = plain.decoded(pa.array([bytes(record[0]) for record in records], pa.binary()))
            told = [(found and tuple(found.values()),) for found in decoded.to_pylist()]
            ddl = f"{CONTROL}, {c.FLAT_JSON} {from_arrow_type(plain.kind).simpleString()}"
        rows = [(0, at, None, *told[at], *record) for at, record in enumerate(records)]
        marker = (0, None, MARK, *[None] * (len(fields) + self._told))
        frame = self._spark.createDataFrame([*rows, marker], f"{ddl}, {self._ddl}")
        shape = RecordShape(self._raw, [(field.name, field.dataType.simpleString()) for field in fields])
        apply.check(frame, self._pipeline, shape)
        return apply.apply(frame, self._pipeline, shape)

    def rows(self, *records: Sequence[Any]) -> list[Judged]:
        """Return the outcomes of these rows, in order; check that the marker passed unchanged."""
        *judged, marker = [row.asDict(recursive=True) for row in self.plan(records).collect()]
        assert (marker[c.MARKER], marker[c.VERDICT], self._original(marker)) == (MARK, None, None)
        assert [row["__pos"] for row in judged] == list(range(len(records)))
        return [
            Judged(
                *_verdict(row[c.VERDICT]),
                self._original(row),
                {name: value for name, value in row.items() if name not in {*c.CONTROL, c.VERDICT, c.ORIGINAL}},
            )
            for row in judged
        ]

    def raw(self, *records: bytes) -> list[Judged]:
        """Return the outcomes of these raw records, in order."""
        return self.rows(*[(bytearray(record),) for record in records])

    def verdicts(self, *records: bytes) -> list[str | None]:
        """The verdicts alone."""
        return [judged.verdict for judged in self.raw(*records)]

    def _original(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """The original where there is one; it may also be there with nothing in it."""
        original = row[c.ORIGINAL]
        if original is None:
            return None
        if isinstance(original, str):
            fields = parse_schema(self._spark, self._ddl, "judged").fields
            shape = RecordShape(self._raw, [(field.name, field.dataType.simpleString()) for field in fields])
            (original,) = original_columns.unpack(pa.array([original]), shape).to_pylist()
        return original if any(value not in (None, []) for value in original.values()) else None


def _verdict(text: str | None) -> tuple[str | None, str | None]:
    """The verdict and why."""
    kind, _, message = (text or "").partition(" ")
    return kind or None, message or None
