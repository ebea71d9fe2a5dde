"""Check records for null values, as ``null_value_behavior`` says: reject the record, filter it, or accept nulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.sql import quote
from airflow_provider_ckpt.spark.transform.record_check import RecordCheck

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


def null_value_checks(pipeline: Pipeline, names: Sequence[str]) -> list[RecordCheck]:
    """Return a check that no field is null; an empty list if ``null_value_behavior`` is ``passthrough``.

    :param pipeline: the pipeline's declaration
    :param names: names of the columns that must not be null
    """
    behavior = pipeline.error_handling.null_value_behavior
    if behavior == "passthrough":
        return []
    verdict = c.FILTERED if behavior == "skip" else str(ErrorType.PROCESSING)
    return [RecordCheck(" OR ".join(f"{quote(name)} IS NULL" for name in names), verdict, "a field is null")]
