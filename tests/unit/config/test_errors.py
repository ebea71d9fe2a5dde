"""Errors of an invalid declaration name file, line and key, and say what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.config.load import build, load, parse
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import ConfigError

SOURCES = "files, jdbc, kafka, postgres, sql"
INSTALL = "for another one, install the distribution with its connector (pip install)"
GOOD = """\
name: orders
source: {type: postgres, connection: shop, table: orders, cursor: id}
sink: {type: postgres, connection: lake, table: orders}
"""


def said(text: str) -> list[str]:
    """Return the loader's error lines for a text."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "my.yaml")
    return caught.value.message.splitlines()


def refusal(data: dict[str, object]) -> str:
    """Return the error of plain data, or an empty text if it is valid and survives a round trip."""
    try:
        pipeline = build(data)
    except ConfigError as error:
        return error.message
    assert build(pipeline.document()) == pipeline
    return ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("retries: {}", "4: retries: unknown key; did you mean retry?"),
        ("time_budget: 1h", "4: time_budget: unknown key here; did you mean run.time_budget?"),
        ("cursor: id", "4: cursor: unknown key here; did you mean source.cursor?"),
        ("run: {time-budget: 1h}", "4: run.time-budget: unknown key; did you mean time_budget?"),
        ("run:\n  time_budge: 1h", "5: run.time_budge: unknown key; did you mean time_budget?"),
        ("lease: {zzz: 1}", "4: lease.zzz: unknown key; known here: ttl, on_busy, wait"),
        ("transform: {schemma: id int}", "4: transform.schemma: unknown key; did you mean schema?"),
        ("error_policy: {Sinkk: halt}", "4: error_policy.Sinkk: unknown error type; did you mean Sink?"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(text: str, message: str) -> None:
    assert said(GOOD + text) == [f"my.yaml:{message}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sink: 5", "sink: given twice, first in line 3"),
        ("delivery: once", "delivery: 'once' is not supported; supported: at_least_once, at_most_once, exactly_once"),
        (
            "error_policy: {Io: hold}",
            "error_policy.Io: 'hold' is not supported; supported: retry, dead_letter, skip_and_log, halt",
        ),
        (
            "dead_letter_queue: {sink: redis}",
            f"dead_letter_queue.sink: 'redis' is not supported; supported: same, files, kafka, postgres; {INSTALL}",
        ),
        ("dead_letter_queue: {sink: files}", "dead_letter_queue: sink: files needs path, a directory"),
        (
            "dead_letter_queue: {sink: same, brokers: 'b:9092'}",
            "dead_letter_queue: brokers has an effect only with sink: kafka; write that, or leave brokers out",
        ),
        ("run: {engine: yarn}", "run.engine: 'yarn' is not supported; supported: warm, submit, connect"),
        (
            "run: {engine: warm, connection: c}",
            "run: engine: warm runs on this machine; leave connection out, or write engine: submit",
        ),
        ("run: {engine: connect}", "run: engine: connect needs connection, the id of one of type spark_connect"),
        ("retry: {on_exhausted: drop}", "retry.on_exhausted: 'drop' is not supported; supported: dlq, hold, fail"),
        ("retry: {on_exhausted: }", "retry.on_exhausted: an empty value is not supported; supported: dlq, hold, fail"),
        (
            "commit_strategy: {commit_interval: often}",
            "commit_strategy.commit_interval: 'often' is not supported; supported: auto, a whole number",
        ),
        ("commit_strategy: {commit_interval: 0}", "commit_strategy: commit_interval must be at least 1 record"),
        ("retry: {max_attempts: 0}", "retry.max_attempts: must be at least 1"),
        ("retry: {max_attempts: 2.5}", "retry.max_attempts: must be a whole number"),
        ("retry: {jitter: 2}", "retry.jitter: must be at most 1.0"),
        ("retry: {jitter: .nan}", "retry.jitter: must be a finite number"),
        ("retry: {multiplier: yes}", "retry.multiplier: must be a number, not true or false"),
        ("consumer: {lanes: true}", "consumer.lanes: must be a number, not true or false"),
        ("transform:", "transform: is empty: give it keys, or leave it out"),
        ("retry: [1, 2]", "retry: must be a mapping of keys to values"),
        ("transform: {where: true}", "transform.where: must be text (put it in quotes)"),
        ("run: {fail_on_hold: perhaps}", "run.fail_on_hold: must be true or false"),
    ],
)
def test_a_value_that_does_not_fit_is_answered_with_what_does(text: str, message: str) -> None:
    assert said(GOOD + text) == [f"my.yaml:4: {message}"]


def test_a_value_that_is_nearly_right_is_answered_with_the_nearest() -> None:
    (line,) = said(GOOD + "consumer: {strategy: pined}")

    assert line.endswith("supported: auto, pinned, round_robin, single; did you mean pinned?")


@pytest.mark.parametrize("value", ["soon", "-1", "1y", "true", ".inf", ".nan", "1e999", "99999999d", "[1]"])
def test_a_duration_that_is_none_is_explained(value: str) -> None:
    assert said(f"{GOOD}lease: {{ttl: {value}}}") == [
        "my.yaml:4: lease.ttl: a duration is a number of seconds or a text such as 90s, 5m, 2h; from 0 to 36500d"
    ]


@pytest.mark.parametrize("value", ["2026-01-01", "2026-01-01T10:00:00Z", "erliest"])
def test_a_start_that_is_no_position_is_explained(value: str) -> None:
    (line,) = said(GOOD.replace("cursor: id", f"cursor: id, start_from: '{value}'"))

    assert "source.start_from" in line
    assert "supported: earliest, latest, a whole number" in line


def test_a_date_where_text_belongs_does_not_crash() -> None:
    assert said(GOOD.replace("orders\n", "2026-01-01\n", 1)) == ["my.yaml:1: name: must be text (put it in quotes)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: later", "4: name: given twice, first in line 1"),
        ("at: 2026-13-45", "4: at: cannot be read as the timestamp that it looks like; put text in quotes"),
        (
            "at: !!python/name:os.system x",
            "4: at: the tag tag:yaml.org,2002:python/name:os.system is not supported; leave it out",
        ),
        ("? [a]\n: b", "4: a key must be plain text"),
        ("retry: &self {again: *self}", "4: retry.again: contains itself by an alias"),
    ],
)
def test_what_yaml_allows_and_a_pipeline_does_not(text: str, message: str) -> None:
    assert said(GOOD + text) == [f"my.yaml:{message}"]


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("", "my.yaml: is empty"),
        ("# nothing\n", "my.yaml: is empty"),
        ("- a\n- b\n", "my.yaml:1: must be a mapping"),
        ("name: a\nsource: [", "my.yaml:2: not valid YAML: while parsing a flow node"),
        ("name: a\n\tsource: b", "my.yaml:2: not valid YAML: while scanning"),
        ("name: a\n---\nname: b\n", "my.yaml:2: not valid YAML: expected a single document"),
        ("name: a\nsink: \x01", "my.yaml:2: not valid YAML: character #x0001"),
        ("[" * 20_000, "my.yaml:1: is nested too deeply"),
    ],
)
def test_broken_yaml_is_one_clear_line(text: str, beginning: str) -> None:
    (line,) = said(text)

    assert line.startswith(beginning)


def test_all_problems_are_listed_and_a_misspelt_key_comes_before_what_is_missing_because_of_it() -> None:
    assert said("name: 5\nsource:\n  typ: files\nsinc: {}\n") == [
        "my.yaml:1: name: must be text (put it in quotes)",
        "my.yaml:3: source.typ: unknown key; did you mean type?",
        "my.yaml:4: sinc: unknown key; did you mean sink?",
        "my.yaml:1: sink: missing",
        "my.yaml:2: source.type: missing; one of: files, jdbc, kafka, postgres, sql",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", cursor: id", "", "2: source.cursor: missing; type: postgres needs it"),
        (", cursor: id", ", cursor: ''", "2: source.cursor: is empty; give it a value"),
        ("connection: lake, ", "", "3: sink.connection: missing; type: postgres needs it"),
        (
            "connection: lake, table: orders",
            "connection: lake, table: 5",
            "3: sink.table: must be text (put it in quotes)",
        ),
        ("orders, cursor: id", "orders, cursor: id, key: [a, a]", "2: source.key: names a twice; leave one out"),
        ("orders, cursor: id", "orders, cursor: id, late_rows: drop", "2: source.late_rows: 'drop' is not supported"),
        ("table: orders}\n", "table: orders, mode: upsert}\n", "3: sink: mode: upsert needs key"),
        (
            "table: orders}\n",
            "table: orders, schema_evolution: add_columns}\n",
            "3: sink.schema_evolution: a postgres sink has no such key, only delta and iceberg; leave it out",
        ),
        (
            "type: postgres, connection: lake, table: orders}\n",
            "type: delta, path: /t, rows_may_differ: true}\n",
            "3: sink.rows_may_differ: a delta sink has no such key, only postgres and sql; leave it out",
        ),
        (
            "type: postgres, connection: lake, table: orders}\n",
            "type: files, path: /t, format: csv, may_be_emptied: true}\n",
            "3: sink.may_be_emptied: a files sink has no such key, only kafka, postgres and sql; leave it out",
        ),
        (
            "type: postgres, connection: lake, table: orders}\n",
            "type: iceberg, connection: lake, table: orders}\n",
            "3: sink.table: must be namespace.table for an iceberg sink",
        ),
        (
            "type: postgres, connection: lake, table: orders",
            "type: delta, path: /t, key: [id]",
            "3: sink.key: a delta sink has no such key, only kafka, postgres and sql; leave it out",
        ),
        (
            "type: postgres, connection: lake, table: orders",
            "type: postgres, connection: lake, table: orders, key: [id]",
            "3: sink: key requires mode: upsert, since append never replaces rows; write that",
        ),
        (
            "type: postgres, connection: lake, table: orders",
            "type: delta, path: /t, mode: upsert",
            "3: sink.mode: 'upsert' is not supported; supported: append, replace",
        ),
        (
            "type: postgres, connection: shop",
            "type: jdbc, connection: shop",
            "2: source.jars: missing; type: jdbc needs it",
        ),
        (
            "type: postgres, connection: shop",
            "type: jdbc, jars: [], connection: shop",
            "2: source.jars: is empty; name the driver's jars",
        ),
        (
            "type: postgres, connection: shop",
            "type: oracle, connection: shop",
            f"2: source.type: 'oracle' is not supported; supported: {SOURCES}; {INSTALL}",
        ),
        (
            "type: postgres, connection: shop",
            "type: postgrs, connection: shop",
            f"2: source.type: 'postgrs' is not supported; supported: {SOURCES}; did you mean postgres?",
        ),
        (
            "type: postgres, connection: shop",
            "type: delta, connection: shop",
            "2: source.type: 'delta' is not supported; supported: files, jdbc, kafka, postgres, sql",
        ),
        ("type: postgres, connection: shop", "type: [a]", "2: source.type: '['a']' is not supported; supported: files"),
    ],
)
def test_parts_that_need_something(old: str, new: str, message: str) -> None:
    (line,) = said(GOOD.replace(old, new))

    assert line.startswith(f"my.yaml:{message}")


@pytest.mark.parametrize("name", ["a b", "", ".a", "-a", "a/b", "ä", "x" * 129])
def test_a_name_that_is_none_is_explained(name: str) -> None:
    (line,) = said(GOOD.replace("name: orders", f"name: '{name}'"))
    assert line.startswith(
        "my.yaml:1: name: must be letters, digits, '_', '-' and '.', not begin with '-' or '.', and be 128 long at most"
    )


def test_a_files_source_needs_to_know_how_records_are_decoded() -> None:
    text = "name: a\nsource: {type: files, path: /in}\nsink: {type: delta, path: /out}\n"

    assert said(text) == ["my.yaml:1: a files source needs transform.decode (json or csv) and transform.schema"]


def test_an_order_that_cannot_be_kept_is_refused() -> None:
    text = GOOD.replace("orders}", "orders, mode: upsert, key: [id]}") + "consumer: {strategy: round_robin}"

    assert "refused for an upsert sink" in said(text)[0]


@pytest.mark.parametrize(("place", "needs"), [("kafka", "connection or brokers"), ("postgres", "connection")])
def test_a_place_for_dead_letters_without_a_connection_is_refused(place: str, needs: str) -> None:
    data: dict[str, object] = {
        "name": "a",
        "source": {"type": "files", "path": "/in"},
        "transform": {"decode": "json", "schema": "id bigint"},
        "sink": {"type": "delta", "path": "/t"},
        "dead_letter_queue": {"sink": place},
    }

    assert f"dead_letter_queue.sink: {place} needs {needs}" in refusal(data)


@pytest.mark.parametrize("part", ["source", "sink"])
def test_an_order_that_cannot_be_kept_is_refused_for_kafka(part: str) -> None:
    data = {
        "name": "a",
        "source": {"type": "postgres", "connection": "c", "table": "t", "cursor": "id"},
        "sink": {"type": "delta", "path": "/t"},
        part: {"type": "kafka", "connection": "c", "topic": "t"},
    }

    assert "refused for kafka" in refusal({**data, "consumer": {"strategy": "round_robin"}})
    assert Pipeline.model_validate(data).pinned


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff\xfe")

    with pytest.raises(ConfigError, match=r"missing.yaml: cannot be read: No such file or directory"):
        load(missing)
    with pytest.raises(ConfigError, match="is a directory; a pipeline is declared in a YAML file"):
        load(tmp_path)
    with pytest.raises(ConfigError, match=r"binary.yaml: is not UTF-8 text: invalid start byte at byte 6"):
        load(binary)


def test_plain_data_is_answered_the_same_without_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        build({"name": "a", "source": {"type": "files", "pth": "/in"}, "sink": {"type": "delta", "path": "/out"}})

    assert caught.value.message.splitlines() == [
        "pipeline: source.pth: unknown key; did you mean path?",
        "pipeline: source.path: missing; type: files needs it",
    ]


def test_a_password_in_the_wrong_place_is_not_repeated() -> None:
    text = GOOD.replace("cursor: id", "cursor: id, password: hunter2") + "lease: hunter2"

    assert "hunter2" not in "".join(said(text))


@given(st.text(max_size=60))
def test_no_text_makes_the_loader_fail_in_another_way(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


@given(
    st.sampled_from(["retry", "lease", "run", "consumer", "commit_strategy", "error_policy", "transform", "recovery"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["ttl", "lanes", "conf", "select", "multiplier", "commit_interval", "window", "Sink"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    ),
)
def test_no_value_makes_the_model_fail_in_another_way(part: str, value: object) -> None:
    data = {
        "name": "a",
        "source": {"type": "postgres", "connection": "c", "table": "t", "cursor": "id"},
        "sink": {"type": "delta", "path": "/t"},
    }

    message = refusal({**data, part: value})

    assert not message or message.startswith(f"pipeline: {part}")
