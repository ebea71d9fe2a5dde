"""A declaration of many tables gives each table its own pipeline; an invalid table does not affect the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.config.database.catalog import CatalogTable
from airflow_provider_ckpt.config.database.expand import expand
from airflow_provider_ckpt.config.database.load import build, parse
from airflow_provider_ckpt.config.database.pipeline_names import (
    MAX_LENGTH,
    database_of_pipeline,
    pipeline_name,
    table_of_pipeline,
)
from airflow_provider_ckpt.core.errors import ConfigError

SHOP = """\
name: shop
database:
  include: ["public.*", "sales.order_*"]
  exclude: ["*_tmp"]
defaults:
  source: {type: postgres, connection: src, cursor: id}
  sink: {type: postgres, connection: dwh, table: "{schema}.{table}"}
tables:
  public.customers: {source: {cursor: updated_at}, sink: {mode: upsert, key: [id]}}
"""

POSTGRES_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63)
"""Names of schemas and tables that PostgreSQL allows, and more."""


def table(label: str, *columns: str, key: tuple[str, ...] = ()) -> CatalogTable:
    """Return a table with the columns id, updated_at and others."""
    schema, name = label.split(".", 1)
    return CatalogTable(schema, name, label, ("id", "updated_at", *columns), key)


def shop(**settings: Any) -> dict[str, Any]:
    """Return a declaration of all tables, with some keys of its section ``database``."""
    return {
        "name": "shop",
        "database": {"include": ["*"], **settings},
        "defaults": {
            "source": {"type": "postgres", "connection": "src", "cursor": "id"},
            "sink": {"type": "postgres", "connection": "dwh", "table": "{schema}.{table}"},
        },
    }


def changed(data: dict[str, Any], defaults: Mapping[str, Any] | None = None, **tables: Any) -> dict[str, Any]:
    """Return a declaration with sections of its defaults and overrides of tables changed."""
    merged = {key: {**data["defaults"].get(key, {}), **value} for key, value in (defaults or {}).items()}
    overrides = {name.replace("__", "."): value for name, value in tables.items()}
    return {**data, "defaults": {**data["defaults"], **merged}, "tables": overrides}


CATALOG = [
    table("sales.order_lines"),
    table("sales.invoices"),
    table("public.orders"),
    table("public.customers"),
    table("public.orders_tmp"),
]


def test_patterns_select_tables_and_each_has_a_pipeline_of_its_own() -> None:
    found = expand(parse(SHOP), CATALOG)

    assert list(found.pipelines) == ["public.customers", "public.orders", "sales.order_lines"]
    assert found.pipelines["public.orders"].name == "shop.public.orders"
    assert found.pipelines["public.orders"].source.place == "public.orders"
    assert found.pipelines["sales.order_lines"].sink.place == "sales.order_lines"
    assert found.errors == {}


def test_each_pattern_tells_what_it_matched() -> None:
    found = [(match.pattern, match.excludes, match.tables) for match in expand(parse(SHOP), CATALOG).matches]

    assert found == [
        ("public.*", False, ("public.customers", "public.orders", "public.orders_tmp")),
        ("sales.order_*", False, ("sales.order_lines",)),
        ("*_tmp", True, ("public.orders_tmp",)),
    ]


def test_keys_of_a_table_replace_the_defaults_and_keep_the_others() -> None:
    document = expand(parse(SHOP), CATALOG).pipelines["public.customers"].document()

    assert document["source"]["cursor"] == "updated_at"
    assert document["source"]["connection"] == "src"
    assert (document["sink"]["mode"], document["sink"]["key"]) == ("upsert", ["id"])
    assert document["sink"]["table"] == "public.customers"


def test_null_leaves_a_default_out() -> None:
    data = changed(shop(), {"retry": {"rounds": 1}}, public__orders={"retry": None})

    found = expand(build(data), [table("public.orders"), table("public.items")])

    assert found.pipelines["public.orders"].retry.rounds == 3
    assert found.pipelines["public.items"].retry.rounds == 1


def test_columns_of_one_table_have_keys_of_their_own_beside_the_defaults() -> None:
    defaults = {"schema": {"new_column": "evolve", "columns": {"note": {"wider_type": "evolve"}}}}
    columns = {"note": {"dropped_column": "keep"}, "secret": {"new_column": "discard"}}
    data = changed(shop(), defaults, public__orders={"schema": {"columns": columns}})

    found = expand(build(data), [table("public.orders"), table("public.items")]).pipelines
    orders, items = (found[label].schema_ for label in ("public.orders", "public.items"))

    assert orders is not None
    assert items is not None
    assert orders.policy.of("secret").new_column == "discard"
    assert orders.policy.of("other").new_column == "evolve"
    assert (orders.policy.of("note").wider_type, orders.policy.of("note").dropped_column) == ("evolve", "keep")
    assert items.policy.of("secret").new_column == "evolve"
    assert (items.policy.of("note").wider_type, items.policy.of("note").dropped_column) == ("evolve", "freeze")


def test_null_leaves_the_keys_of_a_column_out_for_one_table() -> None:
    defaults = {"schema": {"new_column": "evolve", "columns": {"secret": {"new_column": "discard"}}}}
    data = changed(shop(), defaults, public__orders={"schema": {"columns": {"secret": None}}})

    found = expand(build(data), [table("public.orders"), table("public.items")]).pipelines
    orders, items = (found[label].schema_ for label in ("public.orders", "public.items"))

    assert orders is not None
    assert items is not None
    assert orders.policy.of("secret").new_column == "evolve"
    assert items.policy.of("secret").new_column == "discard"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("{new_colum: discard}", "12: tables.public.orders.schema.columns.note.new_colum: unknown key; did you mean"),
        ("{new_column: follow}", "12: tables.public.orders.schema.columns.note.new_column: 'follow' is not supported"),
        ("{renamed_column: as_new}", "11: tables.public.orders.schema: columns.note.renamed_column: as_new needs"),
    ],
)
def test_a_bad_key_of_a_column_names_its_line_and_costs_no_other_table(keys: str, problem: str) -> None:
    text = SHOP + f"  public.orders:\n    schema:\n      columns: {{note: {keys}}}\n"

    found = expand(parse(text, "shop.yaml"), CATALOG)

    assert list(found.pipelines) == ["public.customers", "sales.order_lines"]
    assert f"shop.yaml:{problem}" in str(found.errors["public.orders"])


def test_a_sink_of_another_type_takes_no_keys_of_the_default_sink() -> None:
    data = changed(shop(), public__orders={"sink": {"type": "delta", "path": "/lake/{schema}/{table}"}})

    sink = expand(build(data), [table("public.orders")]).pipelines["public.orders"].sink

    assert (sink.type, sink.place) == ("delta", "/lake/public/orders")


def test_an_upsert_without_key_takes_the_primary_key() -> None:
    data = changed(shop(), {"sink": {"mode": "upsert"}})

    found = expand(build(data), [table("public.orders", key=("id",)), table("public.log")])

    assert found.pipelines["public.orders"].document()["sink"]["key"] == ["id"]
    assert "defaults.sink.key: public.log has no primary key; name the columns" in str(found.errors["public.log"])
    assert "tables.public.log, or add it to database.exclude" in str(found.errors["public.log"])


def test_a_table_without_the_cursor_is_its_own_error_that_says_what_to_do() -> None:
    countries = CatalogTable("public", "countries", "public.countries", ("code", "name"))

    found = expand(parse(SHOP, "shop.yaml"), [*CATALOG, countries])

    assert list(found.pipelines) == ["public.customers", "public.orders", "sales.order_lines"]
    assert found.names["public.countries"] == "shop.public.countries"
    assert str(found.errors["public.countries"]) == (
        "[Config] shop.yaml:6: defaults.source.cursor: public.countries has no column id; its columns: code, name. "
        "Give public.countries keys of its own in tables.public.countries, or add it to database.exclude."
    )


@pytest.mark.parametrize("sink", [{}, {"type": "delta", "path": "/lake/{table}", "connection": None, "table": None}])
def test_a_table_that_is_refreshed_as_a_whole_needs_no_cursor(sink: dict[str, Any]) -> None:
    countries = CatalogTable("public", "countries", "public.countries", ("code", "name"))
    data = changed(shop(), public__countries={"source": {"mode": "full"}, "sink": {**sink, "mode": "replace"}})

    assert expand(build(data), [*CATALOG, countries]).pipelines["public.countries"].refreshes


def test_a_bad_key_of_one_table_names_its_line_and_costs_no_other() -> None:
    text = SHOP + "  public.orders: {retry: {jiter: 1}}\n"

    found = expand(parse(text, "shop.yaml"), CATALOG)

    assert list(found.pipelines) == ["public.customers", "sales.order_lines"]
    assert "shop.yaml:10: tables.public.orders.retry.jiter: unknown key; did you mean jitter?" in str(
        found.errors["public.orders"]
    )


def test_two_tables_with_one_target_are_refused_by_name() -> None:
    data = changed(shop(), public__orders={"sink": {"table": '"public".items'}})

    found = expand(build(data), [table("public.orders"), table("public.items"), table("public.customers")])

    assert list(found.pipelines) == ["public.customers"]
    assert "that of public.items, too" in str(found.errors["public.orders"])
    assert "that of public.orders, too" in str(found.errors["public.items"])


def test_targets_in_other_databases_are_not_the_same() -> None:
    data = changed(shop(), {"sink": {"table": "all"}}, public__orders={"sink": {"connection": "other"}})

    assert expand(build(data), [table("public.orders"), table("public.items")]).errors == {}


def test_a_pattern_that_matches_nothing_names_the_nearest_and_the_others_go_on() -> None:
    text = SHOP.replace('"sales.order_*"', '"slaes.*"')

    found = expand(parse(text, "shop.yaml"), CATALOG)

    assert list(found.pipelines) == ["public.customers", "public.orders"]
    assert str(found.errors["slaes.*"]) == (
        "[Config] shop.yaml:3: database.include.1: slaes.* matches no table of the source; did you mean sales.*?"
    )


def test_an_override_of_a_table_that_does_not_exist_names_the_nearest() -> None:
    found = expand(parse(SHOP), [table("public.orders"), table("sales.order_lines"), table("public.customer")])

    assert "the source has no table public.customers; did you mean public.customer?" in str(
        found.errors["public.customers"]
    )


def test_a_declaration_that_selects_nothing_is_halted() -> None:
    found = expand(build(shop(exclude=["public.*"])), [table("public.orders")])

    with pytest.raises(ConfigError, match=r"database\.include: selects none of the 1 tables"):
        found.refuse_halted()


KNOWN = {"shop.public.orders", "shop.public.gone", "shop2.public.items", "elsewhere"}


def test_before_the_first_run_no_table_is_new() -> None:
    found = expand(build(shop(new_tables="halt")), CATALOG, {"elsewhere", "shop2.public.items"})

    assert (found.new, found.gone, found.halted) == ((), (), None)
    assert len(found.pipelines) == len(CATALOG)


@pytest.mark.parametrize(
    ("new_tables", "pipelines", "new", "ignored"),
    [
        ("add", ["public.items", "public.orders"], ("public.items",), ()),
        ("ignore", ["public.orders"], (), ("public.items",)),
    ],
)
def test_new_tables_are_added_or_ignored(
    new_tables: str, pipelines: list[str], new: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    found = expand(build(shop(new_tables=new_tables)), [table("public.orders"), table("public.items")], KNOWN)

    assert list(found.pipelines) == pipelines
    assert (found.new, found.ignored, found.halted) == (new, ignored, None)


def test_an_ignored_table_is_not_checked() -> None:
    nothing = CatalogTable("public", "nothing", "public.nothing")

    assert expand(build(shop(new_tables="ignore")), [table("public.orders"), nothing], KNOWN).errors == {}


def test_a_new_table_halts_where_the_declaration_says_so() -> None:
    found = expand(build(shop(new_tables="halt")), [table("public.orders"), table("public.items")], KNOWN)

    with pytest.raises(ConfigError, match=r"database\.new_tables: halt: public\.items appeared"):
        found.refuse_halted()


def test_a_gone_table_is_named_and_its_pattern_and_override_stay_valid() -> None:
    data = changed(shop(include=["public.orders", "public.gone"]), public__gone={"source": {"cursor": "at"}})

    found = expand(build(data), [table("public.orders")], KNOWN)

    assert (found.gone, found.errors, found.halted) == (("public.gone",), {}, None)


def test_a_gone_table_halts_where_the_declaration_says_so() -> None:
    found = expand(build(shop(gone_tables="halt")), [table("public.orders")], KNOWN)

    with pytest.raises(ConfigError, match=r"database\.gone_tables: halt: public\.gone disappeared"):
        found.refuse_halted()


def test_a_table_that_is_excluded_now_is_not_gone() -> None:
    assert expand(build(shop(exclude=["*.gone"])), [table("public.orders")], KNOWN).gone == ()


def test_a_table_with_quotes_and_dots_in_its_name_has_a_quoted_target() -> None:
    strange = CatalogTable("public", 'a.b"c', '"public"."a.b""c"', ("id",))

    pipeline = expand(build(shop()), [strange]).pipelines['public.a.b"c']

    assert pipeline.sink.place == 'public."a.b""c"'
    assert pipeline.name == "shop.public.a-2eb-22c"


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "a b", "x\n"])
def test_a_name_that_leads_out_of_a_path_is_refused(name: str) -> None:
    data = changed(shop(), public__x={})
    data["defaults"]["sink"] = {"type": "delta", "path": "/lake/{schema}/{table}"}
    data["tables"] = {}

    found = expand(build(data), [CatalogTable("public", name, "t", ("id",))])

    assert found.pipelines == {}
    assert "cannot be a part of path" in str(found.errors[f"public.{name}"])


def test_two_tables_that_are_written_alike_are_refused() -> None:
    twins = [CatalogTable("a", "b.c", "1", ("id",)), CatalogTable("a.b", "c", "2", ("id",))]

    found = expand(build(shop()), twins)

    assert found.pipelines == {}
    assert "a.b.c names two tables" in str(found.errors["a.b.c"])


@given(st.tuples(POSTGRES_NAMES, POSTGRES_NAMES), st.tuples(POSTGRES_NAMES, POSTGRES_NAMES))
def test_pipelines_of_different_tables_have_different_valid_names(one: tuple[str, str], two: tuple[str, str]) -> None:
    names = [pipeline_name("shop", *one), pipeline_name("shop", *two)]

    assert (names[0] == names[1]) == (one == two)
    for name in names:
        assert build_name(name) == name


@given(POSTGRES_NAMES, POSTGRES_NAMES)
def test_the_name_of_a_pipeline_tells_its_table_unless_it_was_cut(schema: str, name: str) -> None:
    found = table_of_pipeline("shop", pipeline_name("shop", schema, name))

    assert found == f"{schema}.{name}" or (found is None and len(pipeline_name("shop", schema, name)) == MAX_LENGTH)


@given(st.sampled_from(["shop", "s" * 64, "my-shop_2"]), POSTGRES_NAMES, POSTGRES_NAMES)
def test_the_name_of_a_pipeline_tells_its_database_also_if_it_was_cut(database: str, schema: str, name: str) -> None:
    assert database_of_pipeline(pipeline_name(database, schema, name)) == database


@pytest.mark.parametrize(
    "name", ["orders", "orders.v2", "a.b.c.d", "a..b", ".a.b", "a.b.", "a.b.c-", "s" * 65 + ".a.b"]
)
def test_other_pipelines_belong_to_no_database(name: str) -> None:
    assert database_of_pipeline(name) is None


def test_long_names_that_differ_in_the_last_character_have_different_pipelines() -> None:
    names = {pipeline_name("s" * 64, "x" * 63, "y" * 62 + end) for end in "abc"}

    assert len(names) == 3
    assert {len(name) for name in names} == {MAX_LENGTH}


def build_name(name: str) -> str:
    """Return the name of a pipeline after validation."""
    from airflow_provider_ckpt.config import load

    source = {"type": "postgres", "connection": "a", "table": "t", "cursor": "id"}
    sink = {"type": "postgres", "connection": "b", "table": "t"}
    return load.build({"name": name, "source": source, "sink": sink}).name


LABELS = st.sampled_from([f"{schema}.{name}" for schema in ("a", "b") for name in ("x", "y", "z", "bad")])


@given(st.sets(LABELS, min_size=1), st.sets(LABELS, min_size=1))
def test_the_pipeline_of_a_table_depends_on_no_other_table(one: set[str], two: set[str]) -> None:
    database = build(shop())

    def found(labels: set[str]) -> dict[str, Any]:
        catalog = [table(label) for label in labels if not label.endswith("bad")]
        catalog += [CatalogTable(label[0], label[2:], label) for label in labels if label.endswith("bad")]
        expansion = expand(database, catalog)
        assert set(expansion.pipelines) | set(expansion.errors) == labels
        assert {label for label in labels if label.endswith("bad")} == set(expansion.errors)
        return {label: pipeline.document() for label, pipeline in expansion.pipelines.items()}

    first, second = found(one), found(two)
    assert {label: first[label] for label in first if label in second} == {
        label: second[label] for label in second if label in first
    }


def test_thousands_of_tables_are_expanded() -> None:
    found = expand(build(shop()), [table(f"public.t{number}") for number in range(5_000)])

    assert len({pipeline.name for pipeline in found.pipelines.values()}) == 5_000
