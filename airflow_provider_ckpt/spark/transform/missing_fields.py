"""Check JSON records for missing fields of the schema: such a record is rejected or filtered, or gets nulls there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.sql import literal
from airflow_provider_ckpt.spark.transform.record_check import RecordCheck

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


def missing_field_checks(pipeline: Pipeline, text: str, columns: Mapping[str, str]) -> list[RecordCheck]:
    """Return a check that a JSON record has all fields of the schema; a record without one is rejected or filtered.

    The list is empty if missing fields count as null, or if records are not decoded as JSON.

    :param pipeline: the pipeline's declaration
    :param text: name of the column with the record's text
    :param columns: by field name, SQL expression of the parsed column
    """
    behavior = pipeline.error_handling.missing_field_behavior
    if pipeline.transform.decode != "json" or behavior == "null":
        return []
    absent = " OR ".join(f"{column} IS NULL" for column in columns.values())
    wanted = "array(" + ", ".join(map(literal, columns)) + ")"
    lacking = f"size(array_except({wanted}, json_object_keys({text}))) > 0"
    verdict = c.FILTERED if behavior == "skip" else str(ErrorType.JSON_PATH_NOT_FOUND)
    return [RecordCheck(f"({absent}) AND {lacking}", verdict, "a field of the schema is missing")]
