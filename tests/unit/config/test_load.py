"""A valid declaration: the model has the declared values, and the defaults of the documentation."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_ckpt.config.load import build, load, parse
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.transform import Transform
from airflow_provider_ckpt.config.warnings import warnings
from airflow_provider_ckpt.connectors.delta.connector import DeltaSinkSection
from airflow_provider_ckpt.connectors.files.connector import FilesSourceSection
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSinkSection, PostgresSourceSection
from airflow_provider_ckpt.core.errors import ConfigError, ErrorAction, ErrorType
from airflow_provider_ckpt.core.on_exhausted import OnExhausted
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy

MINIMAL = """\
name: orders
source: {type: postgres, connection: shop, table: orders, cursor: id}
sink: {type: postgres, connection: lake, table: orders}
"""
POLICY = """\
delivery: at_least_once
commit_strategy:
  manual_commit: true
  commit_mode: async
  commit_interval: auto
  commit_interval_ms: null
  commit_timeout_ms: 5000
  auto_commit_interval_ms: 5000
  checkpoint_after_ms: 1000
  min_checkpoint_count: 5
  max_checkpoint_count: 1000
retry:
  max_attempts: 3
  initial_delay_ms: 100
  max_delay_ms: 30000
  multiplier: 2.0
  jitter: 0.1
  rounds: 3
  on_exhausted: dlq
dead_letter_queue:
  enabled: true
  sink: same
  topic: streamforge-dlq
  brokers: null
  compression: none
  include_original_headers: true
  include_stack_trace: false
  header_prefix: x-ckpt-
  max_dlq_retries: 3
error_handling:
  missing_field_behavior: error
  null_value_behavior: passthrough
  cache_failure_behavior: skip
consumer:
  strategy: auto
  lanes: auto
  max_in_flight: 500000
"""


def test_streamforges_keys_are_accepted_as_they_stand_and_are_the_defaults() -> None:
    assert parse(MINIMAL + POLICY).document() == parse(MINIMAL).document()


@pytest.mark.parametrize(
    ("fragment", "interval"),
    [
        ("{manual_commit: true, commit_mode: async, commit_interval: 100, commit_timeout_ms: 5000}", 100),
        ("{manual_commit: true, commit_mode: sync, commit_interval: 1}", 1),
        ("{manual_commit: true, commit_mode: async, commit_interval_ms: 30000}", None),
    ],
)
def test_streamforges_commit_strategies(fragment: str, interval: int | None) -> None:
    strategy = parse(f"{MINIMAL}commit_strategy: {fragment}").commit_strategy

    assert strategy.records_per_batch == interval


def test_the_core_gets_the_policy() -> None:
    policy = parse(MINIMAL + "retry: {on_exhausted: hold}\nerror_policy: {Serialization: halt}").policy

    assert policy.retry.on_exhausted is OnExhausted.HOLD
    assert policy.overrides == {ErrorType.SERIALIZATION: ErrorAction.HALT}
    assert parse(MINIMAL).policy == DeliveryPolicy()


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(MINIMAL, "utf-8")

    assert load(file) == load(str(file)) == parse(MINIMAL)


def test_python_and_yaml_say_the_same() -> None:
    in_python = Pipeline(
        name="flights",
        source=FilesSourceSection(type="files", path="/in"),
        transform=Transform(decode="json", schema="id bigint", where="id > 0", select={"n": "id"}),
        sink=DeltaSinkSection(type="delta", path="/out"),
    )
    in_yaml = parse(
        """
        name: flights
        source: {type: files, path: /in}
        transform:
          decode: json
          schema: id bigint
          where: id > 0
          select: {n: id}
        sink: {type: delta, path: /out}
        """
    )

    assert in_yaml == in_python


def test_a_document_reads_back_as_the_same_pipeline() -> None:
    pipeline = parse(MINIMAL + "lease: {ttl: 90s}\nrecovery: {settle_lag: 0.05ms}\nrun: {conf: {spark.ui.enabled: no}}")

    assert build(pipeline.document()) == pipeline


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90", timedelta(seconds=90)),
        ("1.5", timedelta(seconds=1.5)),
        ("250ms", timedelta(milliseconds=250)),
        ("90s", timedelta(seconds=90)),
        ("5 m", timedelta(minutes=5)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
    ],
)
def test_durations_are_seconds_or_have_a_unit(text: str, span: timedelta) -> None:
    assert parse(f"{MINIMAL}run: {{time_budget: {text}}}").run.time_budget == span


def test_keys_are_text_and_spark_properties_and_expressions_may_be_numbers() -> None:
    pipeline = parse(
        MINIMAL + "transform: {select: {on: 1, 2: id}}\nrun: {conf: {spark.ui.enabled: false, spark.cores.max: 2}}"
    )

    assert pipeline.transform.select == {"on": "1", "2": "id"}
    assert pipeline.run.conf == {"spark.ui.enabled": "false", "spark.cores.max": "2"}


def test_parts_may_be_shared_by_an_alias() -> None:
    pipeline = parse(
        "name: a\nsource: {type: postgres, connection: c, table: t, cursor: id, key: &key [id]}\n"
        "sink: {type: postgres, connection: c, table: u, mode: upsert, key: *key}"
    )

    assert PostgresSinkSection.of(pipeline).key == PostgresSourceSection.of(pipeline).key == ("id",)


@pytest.mark.parametrize(
    ("strategy", "mode", "pinned"),
    [
        ("auto", "append", False),
        ("auto", "upsert, key: [id]", True),
        ("pinned", "append", True),
        ("single", "append", True),
        ("round_robin", "append", False),
    ],
)
def test_order_is_kept_where_it_can_matter(strategy: str, mode: str, pinned: bool) -> None:
    text = MINIMAL.replace("lake, table: orders", f"lake, table: orders, mode: {mode}")

    assert parse(f"{text}consumer: {{strategy: {strategy}}}").pinned is pinned


def test_a_declaration_that_does_what_it_says_has_no_warnings() -> None:
    assert warnings(parse(MINIMAL)) == []


def test_keys_that_do_not_do_what_they_say_have_warnings() -> None:
    pipeline = parse(
        MINIMAL + "commit_strategy: {manual_commit: false}\nerror_handling: {cache_failure_behavior: error}\n"
        "dead_letter_queue: {table: letters, compression: none}"
    )

    timer, cache, dead_letters = warnings(pipeline)

    assert "a position is still committed only after" in timer
    assert "a transform has no cache" in cache
    assert dead_letters == "dead_letter_queue.table has no effect: dead letters go beside the postgres target"


@pytest.mark.parametrize(
    ("queue", "without_effect"),
    [
        ("{topic: dead, compression: zstd}", ["topic", "compression"]),
        ("{connection: stream}", ["connection"]),
        ("{sink: kafka, connection: stream, topic: dead, compression: zstd, table: t}", ["table"]),
        ("{sink: postgres, table: letters, path: /x}", ["path"]),
        ("{sink: files, path: /x, connection: fs, topic: dead}", ["topic"]),
    ],
)
def test_what_is_said_of_another_place_for_dead_letters_has_a_warning(queue: str, without_effect: list[str]) -> None:
    said = warnings(parse(f"{MINIMAL}dead_letter_queue: {queue}"))

    assert [text.split()[0].removeprefix("dead_letter_queue.") for text in said] == without_effect


FILES = """\
name: orders
source: {type: files, path: /in}
transform: {decode: json, schema: id bigint}
sink: {type: delta, path: /out}
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MINIMAL + "transform: {schema: id bigint}", "transform.schema has no effect without transform.decode"),
        (
            MINIMAL + "error_handling: {missing_field_behavior: skip}",
            "error_handling.missing_field_behavior has no effect: a postgres source has every column",
        ),
        (
            FILES.replace("json", "csv") + "error_handling: {missing_field_behavior: 'null'}",
            "error_handling.missing_field_behavior has no effect: CSV is decoded by position",
        ),
        (FILES + "recovery: {window: 1d}", "recovery.window has no effect: a files source never shows records late"),
        (
            FILES + "dag: {deferrable: true}",
            "dag.deferrable has no effect with dag.shape: operator, whose task never defers; write shape: task_group",
        ),
    ],
)
def test_a_key_without_effect_has_a_warning(text: str, says: str) -> None:
    assert warnings(parse(text)) == [says]
    assert warnings(build(parse(FILES).document())) == []


def test_a_document_of_a_time_when_all_types_shared_one_model_is_read() -> None:
    pipeline = parse(FILES)
    document = pipeline.document()
    of_others: dict[str, dict[str, object]] = {
        "source": {
            "table": None,
            "topic": None,
            "cursor": None,
            "key": [],
            "columns": [],
            "close_wait": 30.0,
            "jars": [],
        },
        "sink": {"table": None, "topic": None, "format": None, "mode": "append", "key": [], "rows_may_differ": False},
    }

    assert build({**document, **{side: {**document[side], **keys} for side, keys in of_others.items()}}) == pipeline


def test_a_kafka_target_has_a_topic_for_dead_letters() -> None:
    to_kafka = MINIMAL.replace("postgres, connection: lake, table", "kafka, connection: lake, topic")

    assert warnings(parse(to_kafka + "dead_letter_queue: {topic: dead, compression: lz4}")) == []


def test_brokers_alone_mean_kafka() -> None:
    pipeline = parse(MINIMAL + "dead_letter_queue: {brokers: 'kafka:9092'}")

    assert pipeline.dead_letter_queue.sink == "kafka"
    assert pipeline.dead_letter_connection is None
    assert pipeline.connections == {"shop", "lake"}
    assert build(pipeline.document()) == pipeline


@pytest.mark.parametrize(
    ("queue", "connection"),
    [
        ("{sink: postgres}", "lake"),
        ("{sink: postgres, connection: other}", "other"),
        ("{sink: kafka, connection: stream}", "stream"),
        ("{sink: files, path: /x}", None),
        ("{connection: stream}", None),
        ("{enabled: false, sink: kafka}", None),
    ],
)
def test_the_connection_of_a_place_is_its_own_or_one_of_its_type(queue: str, connection: str | None) -> None:
    pipeline = parse(f"{MINIMAL}dead_letter_queue: {queue}")

    assert pipeline.dead_letter_connection == connection
    assert pipeline.connections == {"shop", "lake", connection} - {None}


def test_a_source_that_spark_reads_is_not_for_a_spark_connect_server() -> None:
    source = {"type": "jdbc", "connection": "shop", "table": "t", "cursor": "id", "jars": ["/opt/a.jar"]}
    run = {"engine": "connect", "connection": "server"}

    with pytest.raises(ConfigError, match=r"run\.engine: connect cannot read a jdbc source; write warm or submit"):
        build({"name": "x", "source": source, "sink": {"type": "delta", "path": "/t"}, "run": run})


def test_the_jars_of_a_driver_go_to_spark_along_with_those_of_run_conf() -> None:
    source = {"type": "jdbc", "connection": "shop", "table": "t", "cursor": "id", "jars": ["/opt/a.jar", "/opt/b.jar"]}
    sink = {"type": "delta", "path": "/t"}

    alone = build({"name": "x", "source": source, "sink": sink})
    beside = build({"name": "x", "source": source, "sink": sink, "run": {"conf": {"spark.jars": "/opt/c.jar"}}})

    assert alone.spark_properties == {"spark.jars": "/opt/a.jar,/opt/b.jar"}
    assert beside.spark_properties == {"spark.jars": "/opt/a.jar,/opt/b.jar,/opt/c.jar"}
    assert alone.source.read_by_spark


@pytest.mark.parametrize("written", ["\u0663s", "1\u0660m", "1.\u0665h", "\u0663"])
def test_a_duration_in_digits_of_another_alphabet_is_refused_by_its_key(written: str) -> None:
    with pytest.raises(ConfigError, match=r"lease\.ttl: a duration is a number of seconds or a text such as 90s"):
        parse(FILES + f"lease: {{ttl: '{written}'}}\n")


@pytest.mark.parametrize("key", ["max_record_bytes: '\u0663'", "max_record_bytes: '1\u0663'"])
def test_a_number_in_digits_of_another_alphabet_is_refused_by_its_key(key: str) -> None:
    text = FILES.replace("transform: {", f"transform: {{{key}, ")
    assert text != FILES
    with pytest.raises(ConfigError, match=r"transform\.max_record_bytes"):
        parse(text)
