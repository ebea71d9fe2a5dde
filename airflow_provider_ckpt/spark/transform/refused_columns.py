"""Reject each record that has a value in a column which the pipeline's policy of schema changes refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.spark.sql import quote
from airflow_provider_ckpt.spark.transform.record_check import RecordCheck

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape


_REASONS = {"new_column": "is new", "other_type": "has another type than in the target"}


def refused_column_checks(shape: RecordShape) -> list[RecordCheck]:
    """Return, for each refused column, a check that a record has no value in it.

    :param shape: names and types of the source's columns, and which of them are refused
    """
    return [
        RecordCheck(
            f"{quote(name)} IS NOT NULL",
            ErrorType.PROCESSING,
            f"column {name} {_REASONS[key]}, and schema.{key} is dead_letter",
        )
        for name, (_, key) in shape.refused.items()
    ]
