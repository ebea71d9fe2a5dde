"""The section ``schema``: invalid values, and keys without effect, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.config.schema import column_use
from airflow_provider_ckpt.core.errors import ConfigError
from tests.services.replication import orders_pipeline


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": {"new_column": "skip"}}, r"schema.new_column: 'skip' is not supported"),
        ({"schema": {"other_type": "evolve"}}, r"schema.other_type: 'evolve' is not supported"),
        (
            {"schema": {"columns": {"a": {"new_colum": "evolve"}}}},
            r"new_colum: unknown key; did you mean new_column",
        ),
        (
            {"schema": {"columns": {"a": {"new_column": "skip"}}}},
            r"columns.a.new_column: 'skip' is not",
        ),
        ({"schema": {"columns": {"a": {"renamed_column": "as_new"}}}}, r"columns.a.renamed_column: as_new needs"),
        (
            {
                "schema": {
                    "new_column": "evolve",
                    "dropped_column": "keep",
                    "renamed_column": "as_new",
                    "columns": {"b": {"new_column": "freeze"}},
                }
            },
            r"columns.b.renamed_column: as_new needs",
        ),
        (
            {"schema": {"columns": {"a": {"new_column": "evolve"}}}, "transform": {"select": {"id": "id"}}},
            r"schema.columns.a.new_column has no effect, since transform.select chooses the target's columns",
        ),
        ({"schema": {"renamed_column": "as_new"}}, r"as_new needs dropped_column: keep, and a new_column"),
        (
            {"schema": {"new_column": "evolve"}, "transform": {"select": {"id": "id"}}},
            r"schema.new_column has no effect, since transform.select chooses the target's columns",
        ),
        (
            {"schema": {"dropped_column": "keep"}, "source": {"columns": ["id"]}},
            r"schema.dropped_column has no effect, since source.columns names the columns",
        ),
        (
            {"schema": {}, "sink": {"type": "kafka", "connection": "k", "topic": "t"}},
            r"schema: a kafka sink does not support it; leave it out",
        ),
        (
            {"schema": {}, "sink": {"type": "delta", "path": "/data/t", "schema_evolution": "add_columns"}},
            r"schema and sink.schema_evolution: add_columns both add columns to the target; leave one out",
        ),
    ],
)
def test_what_has_no_effect_is_refused(changes: dict[str, Any], message: str) -> None:
    document = orders_pipeline()
    for key, value in changes.items():
        document[key] = value if key in ("schema", "transform") or "type" in value else {**document[key], **value}

    with pytest.raises(ConfigError, match=message):
        build(document)


def test_a_sink_of_type_sql_supports_it() -> None:
    sink = {"type": "sql", "connection": "reports", "table": "orders"}

    assert build({**orders_pipeline(), "sink": sink, "schema": {"new_column": "evolve"}}).schema_ is not None


@pytest.mark.parametrize(
    ("transform", "used"),
    [
        ({"where": "price > 3 AND upper(`Name`) = 'X'"}, {"price", "name"}),
        ({"select": {"a": "id * size"}}, {"id", "size"}),
        ({"select": {"a": "to_json(struct(*))"}}, {"id", "size", "price", "name"}),
        ({"python": "m:f", "returns": "id bigint"}, {"id", "size", "price", "name"}),
    ],
)
def test_a_column_is_used_if_its_name_occurs_in_an_expression(transform: dict[str, Any], used: set[str]) -> None:
    use = column_use(build({**orders_pipeline(), "transform": transform}), frozenset())

    assert {name for name in ("id", "size", "price", "name") if use.used(name)} == used
