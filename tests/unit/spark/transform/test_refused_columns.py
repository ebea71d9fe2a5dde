"""The error of a record with a value in a refused column names the key of the policy that refuses the column."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.spark.transform.refused_columns import refused_column_checks


def test_the_message_names_the_key_that_refuses_the_column() -> None:
    refused = {"a": ("", "new_column"), "b": ("int", "new_column"), "c": ("int", "other_type")}
    shape = RecordShape(False, [("a", "string"), ("b", "string"), ("c", "string")], 1, {}, refused)

    messages = [check.message for check in refused_column_checks(RecordShape.from_json(shape.to_json()))]

    assert messages == [
        "column a is new, and schema.new_column is dead_letter",
        "column b is new, and schema.new_column is dead_letter",
        "column c has another type than in the target, and schema.other_type is dead_letter",
    ]
    assert shape.outputs == [("b", "int"), ("c", "int")]
