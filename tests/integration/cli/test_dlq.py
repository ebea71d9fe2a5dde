"""``airflow ckpt dlq`` with real JSON lines and a real Delta table: list, show, export, replay and discard."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger_location import resolve_connection
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.integration.airflow.ckpt import Ckpt
from tests.services.delta import read_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.replication.run.summary import RunSummary

BROKEN = b'{"id": "\xff\xfe"}'


class Events:
    """Pipeline ``events``: twenty lines in two batches, of which five are no numbers and one is no text."""

    def __init__(self, spark: SparkSession, ledger: Ledger, folder: Path) -> None:
        self._spark = spark
        self._ledger = ledger
        self._folder = folder
        (folder / "in").mkdir()
        lines = [json.dumps({"id": f"x{n}" if n % 4 == 1 else str(n)}).encode() for n in range(20)]
        lines[10] = BROKEN
        (folder / "in" / "a.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def declare(self, number: str) -> Events:
        """Say how an id becomes a number."""
        document = {
            "name": "events",
            "source": {"type": "files", "path": str(self._folder / "in")},
            "transform": {"decode": "json", "schema": "id string", "select": {"id": number}},
            "sink": {"type": "delta", "path": str(self._folder / "out")},
            "commit_strategy": {"commit_interval": 10},
        }
        self.file.write_text(yaml.safe_dump(document))
        return self

    @property
    def file(self) -> Path:
        """The declaration."""
        return self._folder / "events.yaml"

    def run(self) -> RunSummary:
        """One whole run on the warm session."""
        return replicate(
            PipelineContext(load(self.file), self._ledger, resolve_connection, "test"), SessionEngine(self._spark)
        )

    def ids(self) -> list[int]:
        """Return the ids in the table."""
        return sorted(read_delta(self._folder / "out").column("id").to_pylist())


@pytest.fixture
def events(spark: SparkSession, ledger: Ledger, tmp_path: Path) -> Events:
    """The pipeline after its first run; the ledger is the one that ``airflow ckpt`` finds."""
    made = Events(spark, ledger, tmp_path).declare("cast(id as int)")
    made.run()
    return made


def told(ckpt: Ckpt, *arguments: str) -> list[tuple[str, int, str]]:
    """Error type, number and state of each line of `dlq list`."""
    found: dict[str, Any] = ckpt.json("dlq", "list", "events", *arguments)
    return [(line["error_type"], line["records"], line["state"]) for line in found["dead_letters"]]


def test_what_is_parked_is_listed_by_batch_and_type(ckpt: Ckpt, events: Events) -> None:
    assert told(ckpt) == [
        ("TransformEvaluation", 3, "parked"),
        ("MessageDeserialization", 1, "parked"),
        ("TransformEvaluation", 2, "parked"),
    ]
    assert told(ckpt, "--type", "MessageDeserialization") == [("MessageDeserialization", 1, "parked")]
    assert told(ckpt, "--until", "2020-01-01") == []
    assert events.ids() == [n for n in range(20) if n % 4 != 1 and n != 10]


def test_the_first_of_them_are_listed(ckpt: Ckpt, events: Events) -> None:
    assert told(ckpt, "--stop-at", "4") == [
        ("TransformEvaluation", 3, "parked"),
        ("MessageDeserialization", 1, "parked"),
    ]
    assert told(ckpt, "--stop-at", "2") == [("TransformEvaluation", 2, "parked")]
    assert events.ids()


def test_what_is_misspelt_is_said(ckpt: Ckpt, events: Events) -> None:
    reason = ("--reason", "junk")

    assert "Did you mean TransformEvaluation?" in ckpt.refused(
        "dlq", "list", "events", "--type", "transformEvaluations"
    )
    assert "no error type 'Nonsense'" in ckpt.refused("dlq", "show", "events", "--type", "Nonsense")
    assert "no dead letters of files#77" in ckpt.refused("dlq", "discard", "events", "--batch", "files#77", *reason)
    assert "no dead letters of files#77" in ckpt.refused("dlq", "list", "events", "--batch", "files#77")
    assert events.ids()


def test_a_letter_is_shown_with_its_very_bytes(ckpt: Ckpt, events: Events) -> None:
    (dead_letter,) = ckpt.json("dlq", "show", "events", "--type", "MessageDeserialization")["dead_letters"]

    assert base64.b64decode(dead_letter["value_base64"]) == BROKEN
    assert (dead_letter["value"], dead_letter["state"], dead_letter["error"]) == (None, "parked", "not valid UTF-8")
    assert dead_letter["headers"]["x-ckpt-source-file"].endswith("a.jsonl")
    assert "not valid UTF-8" in ckpt.table("dlq", "show", "events")
    assert events.ids()


def test_letters_are_exported_to_a_file_of_ones_own(ckpt: Ckpt, events: Events, tmp_path: Path) -> None:
    to = tmp_path / "letters.jsonl"

    said = ckpt.json("dlq", "export", "events", "--to", str(to), "--type", "TransformEvaluation", "--stop-at", "4")

    assert said["records"] == 4
    assert [json.loads(line)["value"] for line in to.read_text().splitlines()] == [
        f'{{"id": "x{n}"}}' for n in (1, 5, 9, 13)
    ]
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    assert "File exists" in ckpt.refused("dlq", "export", "events", "--to", str(to))
    assert events.ids()


def test_a_replay_goes_through_the_mended_pipeline_once(ckpt: Ckpt, events: Events) -> None:
    dry = ckpt.json("dlq", "replay", "events", "--type", "TransformEvaluation", "--dry-run")
    events.declare("cast(replace(id, 'x', '') as int)")

    wet = ckpt.json("dlq", "replay", "events", "--type", "TransformEvaluation", "--reason", "x is gone")
    twice = ckpt.json("dlq", "replay", "events", "--type", "TransformEvaluation")
    summary = events.run()

    assert (dry["applied"], wet["applied"], twice["applied"]) == (False, True, False)
    assert (dry["records"], wet["records"], twice["records"]) == (5, 5, 0)
    assert dry["after"]["dead_letters"] == wet["after"]["dead_letters"] == {"parked": 1, "replaying": 5}
    assert summary.records.delivered == 5
    assert events.ids() == [n for n in range(20) if n != 10]
    assert told(ckpt) == [("MessageDeserialization", 1, "parked")]
    assert ckpt.json("dlq", "list", "events", "--all")["records"] == {"replayed": 5, "parked": 1}
    assert events.run().records.read == 0
    assert ckpt.json("audit", "events")["ok"] is True


def test_a_selection_by_what_the_letters_hold(ckpt: Ckpt, events: Events) -> None:
    shown = ckpt.json("dlq", "show", "events", "--query", "x1")["dead_letters"]
    events.declare("cast(replace(id, 'x', '') as int)")

    said = ckpt.json("dlq", "replay", "events", "--query", "x1", "--stop-at", "3")
    events.run()

    assert [dead_letter["value"] for dead_letter in shown] == [f'{{"id": "x{n}"}}' for n in (1, 13, 17)]
    assert said["records"] == 3
    assert {1, 13, 17} <= set(events.ids())
    assert not {5, 9} & set(events.ids())


def test_what_fails_again_is_parked_again(ckpt: Ckpt, events: Events) -> None:
    ckpt.json("dlq", "replay", "events", "--type", "MessageDeserialization")
    events.run()

    (line,) = ckpt.json("dlq", "list", "events", "--type", "MessageDeserialization")["dead_letters"]
    (dead_letter,) = ckpt.json("dlq", "show", "events", "--type", "MessageDeserialization")["dead_letters"]

    assert (line["state"], line["replays"], line["batch"].split("#")[0].split(":")[:2]) == (
        "parked_again",
        1,
        ["dlq", "2"],
    )
    assert base64.b64decode(dead_letter["value_base64"]) == BROKEN
    assert dead_letter["headers"]["x-ckpt-retry-attempts"] == "1"


def test_letters_are_discarded_for_a_reason(ckpt: Ckpt, events: Events) -> None:
    batch = ckpt.json("dlq", "list", "events")["dead_letters"][0]["batch"]

    said = ckpt.json("dlq", "discard", "events", "--batch", batch, "--reason", "junk")

    assert (said["applied"], said["records"]) == (True, 3)
    assert said["after"]["dead_letters"] == {"discarded": 3}
    assert "discarded" in ckpt.table("dlq", "discard", "events", "--stop-at", "1", "--reason", "junk", "--dry-run")
    assert ckpt.json("status", "events")["dead_letters"] == {"MessageDeserialization": 1, "TransformEvaluation": 2}
    kinds = {event["kind"]: event for event in ckpt.json("status", "events")["events"]}
    assert kinds["discard_dead_letters"]["detail"]["reason"] == "junk"
    assert kinds["discard_dead_letters"]["actor"].startswith("cli:")
    assert events.ids()


def test_a_selection_that_names_nothing_does_nothing(ckpt: Ckpt, events: Events) -> None:
    said = ckpt.json("dlq", "replay", "events", "--since", "2999-01-01")

    assert (said["applied"], said["records"]) == (False, 0)
    assert "at least 1" in ckpt.refused("dlq", "replay", "events", "--stop-at", "0")
    assert events.run().records.read == 0
