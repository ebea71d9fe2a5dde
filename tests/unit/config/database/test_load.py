"""Errors of a declaration of many tables name the file, the line and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_ckpt.config.database.load import build, load, parse
from airflow_provider_ckpt.core.errors import ConfigError

HEAD = """\
name: shop
database: {include: ["public.*"], exclude: ["*_tmp"]}
"""
DEFAULTS = """\
defaults:
  source: {type: postgres, connection: src, cursor: id}
  sink: {type: postgres, connection: dwh, table: "{schema}.{table}"}
"""
VALID = HEAD + DEFAULTS


def errors(text: str) -> list[str]:
    """Return the lines of the error of an invalid text."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "shop.yaml")
    return caught.value.message.splitlines()


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(VALID, "utf-8")

    database = load(tmp_path / "shop.yaml")

    assert (database.name, database.source_type, database.connection) == ("shop", "postgres", "src")
    assert (database.settings.groups, database.settings.lanes_per_table) == (8, 2)
    assert (database.settings.new_tables, database.settings.gone_tables) == ("add", "keep")


def test_values_may_be_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SOURCE", "mirror")

    assert parse(VALID.replace("connection: src", 'connection: "${SHOP_SOURCE}"')).connection == "mirror"


def test_plain_data_is_a_declaration_too() -> None:
    data = {
        "name": "shop",
        "database": {"include": ["public.*"]},
        "defaults": {"source": {"type": "postgres"}, "sink": {}},
    }

    assert build(data).connection is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "shop.yaml: is empty; a declaration of many tables needs name, database and defaults"),
        (VALID.replace("name: shop", "name: a.b"), "shop.yaml:1: name: must be letters, digits, '_' and '-'"),
        (VALID.replace("exclude", "exclud"), "shop.yaml:2: database.exclud: unknown key; did you mean exclude?"),
        (VALID.replace('["public.*"]', "[]"), 'shop.yaml:2: database.include: is empty; name tables, such as ["pub'),
        (VALID.replace('"*_tmp"', "' '"), "shop.yaml:2: database.exclude: holds an empty pattern; leave it out"),
        (VALID.replace('"*_tmp"', "a, a"), "shop.yaml:2: database.exclude: names a twice; leave one out"),
        (
            VALID.replace('["*_tmp"]', "[], groups: 0"),
            "shop.yaml:2: database.groups: must be at least 1",
        ),
        (
            VALID.replace('["*_tmp"]', "[], new_tables: ad"),
            "shop.yaml:2: database.new_tables: 'ad' is not supported; supported: add, ignore, halt; did you mean add?",
        ),
        (VALID.replace("source:", "sorce:"), "shop.yaml:4: defaults.sorce: unknown key; did you mean source?"),
        (VALID.replace("source:", "sorce:"), "shop.yaml:3: defaults.source: missing: it names the database"),
        (
            VALID.replace("type: postgres, connection: src", "connection: src"),
            "shop.yaml:4: defaults.source.type: missing",
        ),
        (
            VALID.replace("cursor: id", "cursr: id"),
            "shop.yaml:4: defaults.source.cursr: unknown key; did you mean cursor?",
        ),
        (
            VALID.replace("cursor: id", "table: t"),
            "shop.yaml:4: defaults.source.table: is taken from the catalog; leave",
        ),
        (VALID + "  name: x\n", "shop.yaml:6: defaults.name: has no effect here"),
        (VALID + "  dag: {schedule: '@daily'}\n", "shop.yaml:6: defaults.dag: has no effect here"),
        (VALID + "  retry: {jitter: 9}\n", "shop.yaml:6: defaults.retry.jitter: must be at most 1"),
        (
            VALID.replace("{table}", "{name}"),
            "shop.yaml:5: defaults.sink.table: has {name}; write {schema} or {table}",
        ),
        (
            VALID + "tables:\n  sales.x: {}\n",
            "shop.yaml:7: tables.sales.x: database.include does not include this table",
        ),
        (VALID + "tables:\n  public.x_tmp: {}\n", "shop.yaml:7: tables.public.x_tmp: database.exclude excludes this"),
        (
            VALID + "tables:\n  public.x: {source: {connection: other}}\n",
            "shop.yaml:7: tables.public.x.source.connection: is the same for all tables; write it in defaults",
        ),
        (
            VALID + "tables:\n  public.x: {source: {table: y}}\n",
            "shop.yaml:7: tables.public.x.source.table: is taken from the catalog; leave it out",
        ),
        (VALID + "tables:\n  public.x: [1]\n", "shop.yaml:7: tables.public.x: must be a mapping of keys to values"),
    ],
)
def test_an_invalid_declaration_is_refused(text: str, line: str) -> None:
    assert [found for found in errors(text) if found.startswith(line)], errors(text)


def test_all_problems_are_told_in_the_order_of_the_file() -> None:
    text = VALID.replace("cursor: id", "cursr: id") + "  name: x\ntables:\n  sales.x: {}\n"

    assert [line.split(":")[1] for line in errors(text)] == ["4", "6", "8"]


def test_an_override_that_nothing_includes_names_the_nearest_pattern() -> None:
    assert "did you mean public.*?" in errors(VALID + "tables:\n  pubic.x: {}\n")[0]
