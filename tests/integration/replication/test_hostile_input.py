"""Hostile records from files and topics into every sink: only these are rejected, unchanged, and no run fails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.actions.dead_letters import load_index, read_contents
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.hostile import corpus
from tests.hostile.judge import row_of
from tests.integration.connectors.kafka.kafka_sink_support import stored
from tests.integration.connectors.kafka.kafka_support import CONNECTION, connection_to, producer, put
from tests.services.delta import read_delta
from tests.services.kafka import KafkaBroker
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import DATABASE, Replication
from tests.services.tables import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET = "CREATE TABLE target (id bigint, name text, x double precision)"
LARGE = corpus.large()
RECORDS = [*corpus.BAD.values(), *(record for record, _ in corpus.FINE.values()), *list(LARGE.values())[:3]]
ROWS = [row for record in RECORDS if (row := row_of(record)) is not None]
LETTERS = Counter(record for record in RECORDS if row_of(record) is None)


@pytest.fixture
def ledger(postgres_server: PostgresServer) -> Iterator[Ledger]:
    """A ledger of the test's own."""
    with make_ledger(postgres_server) as made:
        yield made


def document(**parts: Any) -> dict[str, Any]:
    """A pipeline that decodes the corpus."""
    transform = {"decode": "json", "schema": corpus.SCHEMA}
    return {"name": "hostile", "transform": transform, "commit_strategy": {"commit_interval": 40}, **parts}


def in_file(place: Path, records: list[bytes], *, newline: bytes = b"\n", mark: bytes = b"") -> dict[str, str]:
    """A source of one file, which begins as given and ends without a newline."""
    place.mkdir()
    (place / "all.jsonl").write_bytes(mark + newline.join(records))
    return {"type": "files", "path": str(place)}


def kept(replication: Replication) -> Counter[bytes | None]:
    """The bytes of every dead letter, as the sink gives them back."""
    setup = replication.setup()
    return Counter(dead_letter.dead_letter.value for _, dead_letter in read_contents(setup, load_index(setup).entries))


def as_lines(records: Counter[bytes], newline: bytes) -> Counter[bytes]:
    """Records as lines hold them: before a newline, a carriage return is part of the line's end."""
    if newline != b"\n":
        return records
    found: Counter[bytes] = Counter()
    for record, times in records.items():
        found[record.removesuffix(b"\r")] += times
    return found


def repeated(rows: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Rows by how often they come; the sign of nothing is no difference here."""
    found = [(row["id"], row["name"], None if row["x"] is None else row["x"] + 0.0) for row in rows]
    return Counter(map(repr, found))


def settled(replication: Replication, summary: RunSummary, *, dead_letters: int, rows: int) -> None:
    """Every record has one fate, and ledger and sink agree about all of them."""
    assert summary.records == Counts(dead_letters + rows, rows, 0, dead_letters)
    assert summary.route == ["dead_letters", "done"]
    assert summary.batches_by_state == {}
    assert audit_sink(replication.setup(), lambda _: None)["differences"] == []


@pytest.mark.parametrize(("newline", "mark"), [(b"\n", b""), (b"\r\n", b"\xef\xbb\xbf")], ids=["LF", "CRLF and BOM"])
def test_files_into_delta(spark: SparkSession, ledger: Ledger, tmp_path: Path, newline: bytes, mark: bytes) -> None:
    source = in_file(tmp_path / "in", RECORDS, newline=newline, mark=mark)
    sink = {"type": "delta", "path": str(tmp_path / "table")}
    replication = Replication(spark, ledger, "", document(source=source, sink=sink))

    summary = replication.run()

    settled(replication, summary, dead_letters=LETTERS.total(), rows=len(ROWS))
    assert repeated(read_delta(tmp_path / "table").to_pylist()) == repeated(ROWS)
    assert kept(replication) == as_lines(LETTERS, newline)


def test_files_into_postgres(spark: SparkSession, ledger: Ledger, tmp_path: Path, postgres_database: str) -> None:
    execute(postgres_database, TARGET)
    source = in_file(tmp_path / "in", RECORDS)
    sink = {"type": "postgres", "connection": DATABASE, "table": "target"}
    replication = Replication(spark, ledger, postgres_database, document(source=source, sink=sink))

    summary = replication.run()

    taken = [row for row in ROWS if "\x00" not in (row["name"] or "")]
    refused = Counter(record for record in RECORDS if "\x00" in ((row_of(record) or {}).get("name") or ""))
    assert refused.total() == 1
    settled(replication, summary, dead_letters=LETTERS.total() + 1, rows=len(taken))
    found = [dict(zip(("id", "name", "x"), row, strict=True)) for row in execute(postgres_database, "TABLE target")]
    assert repeated(found) == repeated(taken)
    assert kept(replication) == as_lines(LETTERS + refused, b"\n")


def test_a_quote_that_is_never_closed_costs_the_rest_of_its_file_and_nothing_else(
    spark: SparkSession, ledger: Ledger, tmp_path: Path, postgres_database: str
) -> None:
    execute(postgres_database, TARGET)
    good = b"".join(b"%d,name %d,1.5\n" % (number, number) for number in range(100))
    rest = b'7,"never closed,1.5\n' + good * 40_000
    source = in_file(tmp_path / "in", [good + rest])
    (tmp_path / "in" / "other.csv").write_bytes(good + rest)
    transform = {"decode": "csv", "schema": corpus.SCHEMA, "where": "id >= 0"}
    sink = {"type": "postgres", "connection": DATABASE, "table": "target"}
    parts = document(source={**source, "format": "csv", "header": False}, sink=sink, transform=transform)
    replication = Replication(spark, ledger, postgres_database, parts)

    summary = replication.run()

    assert len(rest) > 50 * corpus.MEGABYTE
    settled(replication, summary, dead_letters=2, rows=200)
    assert kept(replication) == Counter({rest: 2})


def test_a_topic_into_a_topic(
    spark: SparkSession, ledger: Ledger, kafka_broker: KafkaBroker, postgres_database: str
) -> None:
    source, target = kafka_broker.new_topic(1), kafka_broker.new_topic(1)
    headers: list[Any] = [("h", b"\xff\x00"), ("h", None), ("", b""), ("näme", "é".encode())]
    with_key = producer(kafka_broker, **{"message.max.bytes": 32 << 20})
    for record in RECORDS:
        with_key.produce(source, record, key=b"\x00\xff" + record[:20], headers=headers, partition=0)
    assert with_key.flush(30) == 0
    put(kafka_broker, source, [None], key=b"tombstone")
    named = {"source": {"type": "kafka", "connection": CONNECTION, "topic": source}}
    named |= {"sink": {"type": "kafka", "connection": CONNECTION, "topic": target}}
    parts = document(**named, dead_letter_queue={"topic": f"letters-{target}"})
    others = {CONNECTION: connection_to(kafka_broker)}
    replication = Replication(spark, ledger, postgres_database, {**parts, "name": f"hostile-{target}"}, others)

    summary = replication.run()

    values = [json.loads(record.value or b"") for record in stored(kafka_broker, target)]
    large = sum(len(row["name"] or "") > corpus.MEGABYTE for row in ROWS)
    settled(replication, summary, dead_letters=LETTERS.total() + 1, rows=len(ROWS))
    assert large == 1
    assert repeated(values) == repeated(ROWS)
    assert kept(replication) == LETTERS + Counter([None])
    first = next(dead_letter for dead_letter in stored(kafka_broker, f"letters-{target}") if dead_letter.value)
    assert first.headers[:4] == headers
