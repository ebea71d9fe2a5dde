"""A separate dead letter store: letters are stored before the receipt, which counts them; else the run halts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.config.load import parse
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopicsClient
from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, ErrorType
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.replication.actions.dead_letters import load_index, make_action, read_contents
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced_or_store
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.integration.connectors.kafka.kafka_sink_support import stored
from tests.integration.connectors.kafka.kafka_support import by_sasl, put
from tests.integration.connectors.kafka.kafka_support import connection_to as broker_connection
from tests.services.kafka import KafkaBroker
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication, connection_to
from tests.services.tables import execute, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM, ARCHIVE = "stream", "archive"
BAD_FOR_THE_TRANSFORM, BAD_FOR_THE_TARGET = [150, 155], [160, 950]
BAD = [*BAD_FOR_THE_TRANSFORM, *BAD_FOR_THE_TARGET]
COLUMNS = ("id", "amount", "created_at", "status", "note")
SELECT = {**{name: name for name in COLUMNS}, "customer": "cast(customer / if(id IN (150, 155), 0, 1) as int)"}
USED_UP = {"max_attempts": 2, "rounds": 1, "initial_delay_ms": 1}


@dataclass
class Place:
    """A place for dead letters, and how to look at it from outside."""

    queue: dict[str, Any]
    connections: dict[str, Connection]
    count: Callable[[], int]


@pytest.fixture(params=["files", "postgres", "kafka"])
def place(request: pytest.FixtureRequest, postgres_server: PostgresServer, tmp_path: Path) -> Place:
    """Each of the places, empty."""
    if request.param == "files":
        directory = tmp_path / "dead_letters"
        files = lambda: sum(len(f.read_text().splitlines()) for f in directory.rglob("*.jsonl"))  # noqa: E731
        return Place({"sink": "files", "path": str(directory)}, {}, files)
    if request.param == "postgres":
        dsn = postgres_server.new_database()
        execute(dsn, 'CREATE SCHEMA "dead {5%}"')
        queue = {"sink": "postgres", "connection": ARCHIVE, "table": '"dead {5%}".them'}
        rows = lambda: int(scalar(dsn, 'SELECT count(*) FROM "dead {5%}".them'))  # noqa: E731
        return Place(queue, {ARCHIVE: connection_to(dsn, ARCHIVE)}, rows)
    broker: KafkaBroker = request.getfixturevalue("kafka_broker")
    topic = f"letters-{broker.new_topic(1)}"
    queue = {"sink": "kafka", "connection": STREAM, "topic": topic, "compression": "zstd"}
    archive = broker_connection(broker, **by_sasl(broker))
    return Place(queue, {STREAM: archive}, lambda: len(stored(broker, topic)))


def at(orders: Replication, place: Place, **more: Any) -> Replication:
    """The orders with bad ones among them, whose letters go to a place."""
    execute(orders.dsn, "ALTER TABLE target ADD CONSTRAINT fine CHECK (id NOT IN (160, 950))")
    parts = {"transform": {"select": SELECT}, "dead_letter_queue": place.queue, "delivery": "exactly_once", **more}
    return replace(orders.changed(**parts), others={**orders.others, **place.connections})


def positions(orders: Replication) -> list[int]:
    """Return the source positions of the dead letters in the index whose contents are found."""
    setup = orders.setup()
    return sorted(kept.dead_letter.position for _, kept in read_contents(setup, load_index(setup).entries))


def test_letters_are_kept_found_and_replayed_once(orders: Replication, place: Place) -> None:
    elsewhere = at(orders, place)

    summary = elsewhere.run()

    assert summary.records == Counts(1000, 996, 0, 4)
    assert summary.errors == {"TransformEvaluation": 2, "Sink": 2}
    assert (positions(elsewhere), place.count()) == (BAD, 4)
    assert scalar(orders.dsn, "SELECT count(*) FROM ckpt_sink_dead_letter") == 0
    setup = elsewhere.setup()
    by_position = {
        kept.dead_letter.position: kept.dead_letter for _, kept in read_contents(setup, load_index(setup).entries)
    }
    assert by_position[160].error.sqlstate == "23514"
    assert by_position[160].headers["x-ckpt-source-position"] == "160"
    assert json.loads(by_position[150].value or b"")["id"] == 150

    execute(orders.dsn, "ALTER TABLE target DROP CONSTRAINT fine")
    action = make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, Selection())
    apply_fenced_or_store(setup, action, actor="ann", reason="mended")
    again = elsewhere.run()

    assert again.records == Counts(4, 2, 0, 2), "the transform still refuses two"
    assert elsewhere.run().records == Counts()
    assert scalar(orders.dsn, "SELECT count(DISTINCT id) FROM target") == 998
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 998
    assert elsewhere.ledger.audit("orders")["ok"]


def test_what_an_attempt_left_that_came_to_nothing_does_not_count(orders: Replication, place: Place) -> None:
    elsewhere = at(orders, place, retry={"initial_delay_ms": 1})
    execute(
        orders.dsn,
        "CREATE SEQUENCE tries",
        """
        CREATE FUNCTION first_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 199 AND nextval('tries') = 1 THEN RAISE EXCEPTION 'not yet' USING ERRCODE = '40001'; END IF;
            RETURN NEW;
        END $$
        """,
        "CREATE TRIGGER first_time AFTER INSERT ON target FOR EACH ROW EXECUTE FUNCTION first_time()",
    )

    summary = elsewhere.run()

    assert (summary.records, summary.retried) == (Counts(1000, 996, 0, 4), 1)
    assert positions(elsewhere) == BAD
    assert place.count() == 6, "two of the first attempt are there, too, for whoever reads all"


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_letter_that_cannot_be_kept_halts_the_run_and_nothing_of_its_batch_is_sent(
    orders: Replication, place: Place
) -> None:
    elsewhere = at(orders, replace(place, queue={**place.queue, "max_dlq_retries": 1}), consumer={"strategy": "single"})
    dsn = place.connections[ARCHIVE]
    archive = f"postgresql://{dsn.login}:{dsn.password or ''}@{dsn.host}:{dsn.port}/{dsn.schema}"
    with closing(elsewhere.setup().open_sink()) as sink:
        sink.create_bookkeeping()
    execute(archive, 'ALTER TABLE "dead {5%}".them ADD CHECK (position <> 155)')

    with pytest.raises(CkptError, match=r"dead letters could not be stored, so nothing of it was sent") as caught:
        elsewhere.run()

    assert caught.value.type is ErrorType.DEAD_LETTER_QUEUE
    assert (caught.value.batch or "").endswith("#1")
    [record] = orders.ledger.partitions("orders").values()
    assert record.partition.committed == 101
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 100
    assert scalar(orders.dsn, "SELECT count(*) FROM ckpt_sink_receipt") == 1

    execute(archive, 'ALTER TABLE "dead {5%}".them DROP CONSTRAINT them_position_check')
    assert elsewhere.run().records == Counts(900, 896, 0, 4)


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_a_whole_batch_that_is_given_up_goes_there_too(orders: Replication, place: Place) -> None:
    elsewhere = at(orders, place, retry=USED_UP)
    execute(
        orders.dsn,
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = 350 THEN RAISE EXCEPTION 'never' USING ERRCODE = '40001'; END IF;
            RETURN NEW;
        END $$
        """,
        "CREATE TRIGGER refuse BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION refuse()",
    )

    assert elsewhere.run().records == Counts(1000, 896, 0, 104)

    assert positions(elsewhere) == sorted([*BAD, *range(301, 401)])


def test_a_table_of_files_has_its_letters_elsewhere_too(
    orders: Replication, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    dsn = postgres_server.new_database()
    place = Place({"sink": "postgres", "connection": ARCHIVE}, {ARCHIVE: connection_to(dsn, ARCHIVE)}, int)
    elsewhere = at(orders, place, sink={"type": "delta", "path": str(tmp_path / "table"), "table": None})

    summary = elsewhere.run()

    assert (summary.records, summary.errors) == (Counts(1000, 998, 0, 2), {"TransformEvaluation": 2})
    assert positions(elsewhere) == BAD_FOR_THE_TRANSFORM
    assert scalar(dsn, "SELECT count(*) FROM ckpt_dead_letter") == 2
    assert list(tmp_path.glob("*.dead_letters/**/*.jsonl")) == []
    lost = next((tmp_path / "table").glob("*.parquet"))
    lost.unlink()
    (found,) = audit_sink(elsewhere.setup(), lambda _: None)["differences"]
    assert str(lost) in found["message"]


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        ({"sink": "files", "path": "{file}"}, "is a file, not a directory"),
        ({"sink": "postgres", "connection": ARCHIVE, "table": "nowhere.them"}, "nowhere.them does not exist"),
        ({"sink": "postgres", "connection": ARCHIVE, "table": "other"}, "is another table: it has no column ledger"),
        ({"sink": "postgres", "connection": "gone"}, "'gone' is not defined"),
        (
            {"sink": "kafka", "connection": STREAM, "brokers": "127.0.0.1:1"},
            "topic streamforge-dlq at 127.0.0.1:1",
        ),
    ],
)
def test_a_place_that_cannot_be_is_refused_before_anything_is_sent(
    orders: Replication, queue: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    execute(orders.dsn, "CREATE TABLE other (id int)")
    named = {key: value.format(file=tmp_path / "file") for key, value in queue.items()}
    hasty = Connection(STREAM, "kafka", extra={"socket.timeout.ms": 500})
    place = Place(named, {ARCHIVE: connection_to(orders.dsn, ARCHIVE), STREAM: hasty}, int)

    with pytest.raises(CkptError, match=message):
        at(orders, place).run()

    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 0


# StreamForge's own configuration

STREAMFORGE = """
# At-least-once with batch commit (high throughput)
commit_strategy:
  manual_commit: true
  commit_mode: async
  commit_interval: 100  # Batch size
  commit_timeout_ms: 5000

# Retry with exponential backoff
retry:
  max_attempts: 3
  initial_delay_ms: 100
  max_delay_ms: 30000
  multiplier: 2.0
  jitter: 0.1

# Dead letter queue
dead_letter_queue:
  enabled: true
  topic: "streamforge-dlq"
  brokers: "kafka:9092"
  include_original_headers: true
  max_dlq_retries: 3
  header_prefix: x-streamforge-

# Error handling
error_handling:
  missing_field_behavior: "error"  # Send to DLQ
  null_value_behavior: "passthrough"
  cache_failure_behavior: "skip"  # Don't halt on cache failures
"""
LOW_LATENCY = """
# Per-message commit (low latency)
commit_strategy:
  manual_commit: true
  commit_mode: sync  # Wait for commit to complete
  commit_interval: 1

# Aggressive retry
retry:
  max_attempts: 5
  initial_delay_ms: 10
  max_delay_ms: 1000

# Same DLQ config...
"""
HIGH_THROUGHPUT = """
# Large batch commit (maximize throughput)
commit_strategy:
  manual_commit: true
  commit_mode: async
  commit_interval: 1000  # Large batch

# Same retry config...
"""


@pytest.fixture
def topics(spark: SparkSession, kafka_broker: KafkaBroker, postgres_server: PostgresServer) -> Iterator[Replication]:
    """A source topic with three messages, one of which is bad, and a target; a test adds the policy."""
    source, target = kafka_broker.new_topic(1), kafka_broker.new_topic(1)
    put(kafka_broker, source, [b'{"id": 1}', b"not valid json", b'{"id": 3}'], key=b"user-123", headers=[("own", b"1")])
    document = {
        "name": f"selective-{target}",
        "source": {"type": "kafka", "connection": STREAM, "topic": source},
        "transform": {"decode": "json", "schema": "id bigint"},
        "sink": {"type": "kafka", "connection": STREAM, "topic": target},
    }
    with make_ledger(postgres_server) as ledger:
        yield Replication(spark, ledger, "", document, {STREAM: broker_connection(kafka_broker)})


@pytest.mark.parametrize("policy", [STREAMFORGE, LOW_LATENCY, HIGH_THROUGHPUT], ids=["batch", "message", "large"])
def test_a_streamforge_file_runs_as_it_stands(topics: Replication, kafka_broker: KafkaBroker, policy: str) -> None:
    # Only the address differs: the document's broker is called kafka.
    target = topics.document["sink"]["topic"]
    written = parse(f"{_yaml(topics.document)}{policy.replace('kafka:9092', kafka_broker.bootstrap)}").document()
    run = replace(topics, document=written)

    summary = run.run()

    assert summary.records == Counts(3, 2, 0, 1)
    assert [record.value for record in stored(kafka_broker, target)] == [b'{"id":1}', b'{"id":3}']
    queue = written["dead_letter_queue"]
    pipeline, prefix = written["name"], queue["header_prefix"]
    (dead_letter,) = [
        found for found in stored(kafka_broker, queue["topic"]) if found.header.get(f"{prefix}pipeline") == pipeline
    ]
    assert (dead_letter.key, dead_letter.value) == (b"user-123", b"not valid json")
    assert dead_letter.header["own"] == "1"
    assert dead_letter.header[f"{prefix}error-type"] == "MessageDeserialization"
    assert dead_letter.header[f"{prefix}source-offset"] == "1"
    assert dead_letter.header[f"{prefix}destination"] == target


def _yaml(document: Any) -> str:
    """A declaration as the first lines of a file; JSON is YAML."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in document.items())


def test_what_spark_says_of_a_message_is_its_letters_stack_trace(
    topics: Replication, kafka_broker: KafkaBroker
) -> None:
    dead_letters = f"traced-{topics.document['sink']['topic']}"
    traced = topics.changed(
        dead_letter_queue={"topic": dead_letters, "include_stack_trace": True},
        transform={"where": "id / (id - 1) > 0", "select": {"id": "CAST(concat('x', id) AS int)"}},
    )

    assert traced.run().records == Counts(3, 0, 0, 3)

    traces = [dead_letter.header["x-ckpt-stack-trace"] for dead_letter in stored(kafka_broker, dead_letters)]
    assert [text.split()[0] for text in traces] == [
        "[DIVIDE_BY_ZERO]",
        "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION]",
        "[CAST_INVALID_INPUT]",
    ]


def test_the_topic_of_a_kafka_target_is_made_with_the_compression_that_is_asked_for(topics: Replication) -> None:
    target = topics.document["sink"]["topic"]
    compressed = topics.changed(dead_letter_queue={"topic": f"dead-{target}", "compression": "gzip"})

    assert compressed.run().records == Counts(3, 2, 0, 1)

    made = SinkTopicsClient(topics.others[STREAM], "orders").find(f"dead-{target}")
    assert made is not None
    assert made.settings["compression.type"] == "gzip"


def test_a_kafka_target_whose_letters_are_on_another_topic_cannot_name_its_own(topics: Replication) -> None:
    same = topics.changed(dead_letter_queue={"sink": "kafka", "topic": topics.document["sink"]["topic"]})

    with pytest.raises(ConfigError, match=r"sink\.topic and dead_letter_queue\.topic are the same"):
        same.run()
