"""Refreshes of a whole table: each run replaces all rows at once, unless a user must decide first."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.postgres import replacing_sink
from airflow_provider_ckpt.connectors.postgres.full_source import PostgresFullSource
from airflow_provider_ckpt.connectors.postgres.replacing_sink import PostgresReplacingSink
from airflow_provider_ckpt.connectors.postgres.writer import PostgresWriter
from airflow_provider_ckpt.connectors.sink_protocol import Refused, SinkContext, unwrapped
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType, FencedError, SinkChangedError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.ledger.types import ActionResult
from airflow_provider_ckpt.replication.actions.accept_sink import make_acceptance
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext, change_sink
from airflow_provider_ckpt.replication.actions.dead_letters import make_action
from airflow_provider_ckpt.replication.observe.preview import preview
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.attach_or_reacquire import attach_or_reacquire
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from airflow_provider_ckpt.replication.turn import Turn
from tests.integration.connectors.interruptions import before, once
from tests.integration.replication.refreshed_targets import TARGETS, LakeTarget, RefreshedTarget
from tests.services.ledgers import make_ledger
from tests.services.plain_engine import PlainEngine
from tests.services.postgres import PostgresServer
from tests.services.replication import DATABASE, Replication, connection_to
from tests.services.tables import add_rows, execute, make_source, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, OLD_ROWS = 1000, 10
SOURCE = "public.countries"


EVERY_SINK = pytest.mark.parametrize("target", TARGETS, indirect=True)
"""A test of all sinks with ``mode: replace``; a test without it is of the postgres sink."""


@pytest.fixture
def target(request: pytest.FixtureRequest, postgres_database: str, tmp_path: Path) -> RefreshedTarget:
    """A target with 10 rows that the source, which has 1,000, does not have."""
    make_source(postgres_database, "countries", ROWS)
    make = TARGETS[getattr(request, "param", "postgres")]
    target = make(postgres_database, tmp_path, lambda: request.getfixturevalue("mariadb_server"))
    columns = "customer, amount, created_at, status, note"
    target.fill(execute(postgres_database, f"SELECT -id, {columns} FROM countries LIMIT {OLD_ROWS}"))
    return target


@pytest.fixture
def countries(postgres_server: PostgresServer, target: RefreshedTarget) -> Iterator[Replication]:
    """A pipeline that refreshes the target in batches of about 100 rows."""
    document = {
        "name": "countries",
        "source": {"type": "postgres", "connection": DATABASE, "table": "countries", "mode": "full"},
        "sink": target.sink,
        "commit_strategy": {"commit_interval": 100},
    }
    with make_ledger(postgres_server) as ledger:
        yield Replication(cast("SparkSession", None), ledger, target.dsn, document, target.connections)


def refresh(countries: Replication) -> RunSummary:
    """One whole run without Spark."""
    return replicate(countries.setup(), PlainEngine())


def receipted(countries: Replication) -> list[BatchKey]:
    """Return the batches that have a receipt in the sink."""
    with closing(countries.setup().open_sink()) as sink:
        return [receipt.key for receipt in sink.receipts({})]


def decide(countries: Replication, kind: ActionKind, *, dry_run: bool = False) -> ActionResult:
    """Have a person act on the held batch."""
    keys = tuple(batch.key for batch in unresolved(countries))
    return countries.ledger.action(
        "countries", Action(kind, keys), actor="ann", reason="countries merged", dry_run=dry_run
    )


def unresolved(countries: Replication) -> list[Batch]:
    """Return the unresolved batches of the source's partition."""
    return list(countries.ledger.partitions("countries")[SOURCE].partition.blocking.values())


@EVERY_SINK
def test_each_run_replaces_all_rows_of_the_target(
    countries: Replication, target: RefreshedTarget, spark: SparkSession
) -> None:
    with_spark = replace(countries, spark=spark)
    first = with_spark.run()
    execute(countries.dsn, "DELETE FROM countries WHERE id <= 300", "UPDATE countries SET note = '' WHERE id > 900")
    second = with_spark.changed(transform={"where": "id <= 950"}).run()

    assert (first.records, first.route) == (Counts(ROWS, ROWS, 0, 0), ["done"])
    assert second.records == Counts(700, 650, 50, 0)
    assert target.copied() == (650, 650)
    assert target.staged() == 0


@EVERY_SINK
def test_a_refresh_begins_in_the_task_that_runs_its_waves(countries: Replication, target: RefreshedTarget) -> None:
    looked = preview(countries.setup())
    with acquire(countries.setup("group")) as planning:
        planned = planning.prepare()
        planning.finish(release=False)
    with attach_or_reacquire(countries.setup("group"), planning.epoch) as sending:
        sending.execute(PlainEngine(), rounds=False)
        summary = sending.finish()

    assert (looked["starts_spark"], looked["records"]) == (True, ROWS)
    assert looked["batches"] == len(looked["planned"]) > 1
    assert (planned, summary.route, summary.records.delivered) == (1, ["done"], ROWS)
    assert countries.ledger.partitions("countries")[SOURCE].partition.generation == 1
    assert countries.ledger.audit("countries")["ok"]
    assert target.copied() == (ROWS, ROWS)


@EVERY_SINK
def test_a_refresh_that_lacks_too_many_rows_waits_for_a_person(countries: Replication, target: RefreshedTarget) -> None:
    refresh(countries)
    execute(countries.dsn, "DELETE FROM countries WHERE id > 400")

    held = refresh(countries)
    again = refresh(countries)

    assert (held.route, held.batches_by_state) == (["hold"], {"held": 1})
    assert (again.route, again.batches, again.spark_started) == (["hold"], 0, False)
    assert target.copied() == (ROWS, 400)
    tried = decide(countries, ActionKind.RELEASE, dry_run=True)
    [before], [after] = tried.before["batches"].values(), tried.after["batches"].values()
    assert (tried.applied, before, after) == (False, "held", "planned")
    [publication] = unresolved(countries)
    assert publication.state is BatchState.HELD

    decide(countries, ActionKind.RELEASE)
    add_rows(countries.dsn, "countries", 2001, 2011)
    published = refresh(countries)

    assert published.route == ["done"]
    assert target.copied() == (410, 410)
    assert publication.key in receipted(countries), "the refresh that was held was published before the new one"
    assert target.staged() == 0


@pytest.mark.parametrize("target", ["delta", "iceberg"], indirect=True)
def test_files_of_a_refresh_that_is_skipped_are_removed_by_the_next_one(
    countries: Replication, target: RefreshedTarget
) -> None:
    assert isinstance(target, LakeTarget)
    refresh(countries)
    execute(countries.dsn, "DELETE FROM countries WHERE id > 400")
    assert refresh(countries).route == ["hold"]
    skipped = target.waiting()
    decide(countries, ActionKind.SKIP)

    assert refresh(countries).route == ["hold"], "the new refresh has as few rows"

    assert skipped
    assert not any(path.exists() for path in skipped)
    assert target.copied() == (ROWS, 400)


@EVERY_SINK
def test_rows_that_others_add_after_the_count_are_counted_before_they_are_removed(
    countries: Replication, target: RefreshedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh(countries)
    execute(countries.dsn, "DELETE FROM countries WHERE id > 600")
    added = [(-number, *row[1:]) for number, row in enumerate(target.rows()[:300], 1)]
    with closing(countries.setup().open_sink()) as sink:
        kind = type(unwrapped(sink))
    monkeypatch.setattr(kind, "publish", before(kind.publish, once(lambda: target.append(added))))  # type: ignore[attr-defined]

    assert refresh(countries).route == ["hold"]
    assert target.copied() == (ROWS + 300, 600)


@pytest.mark.parametrize(
    ("target", "loss"),
    [
        *((sink, None) for sink in TARGETS),
        ("postgres", "DROP TABLE ckpt_stage_2_copied"),
        ("postgres", "UPDATE ckpt_sink_receipt SET verdict = 'void' WHERE generation = 2"),
    ],
    indirect=["target"],
)
def test_a_released_refresh_whose_rows_are_lost_is_begun_anew(
    countries: Replication, target: RefreshedTarget, loss: str | None
) -> None:
    refresh(countries)
    execute(countries.dsn, "DELETE FROM countries WHERE id > 400")
    assert refresh(countries).route == ["hold"]
    if loss is None:
        target.lose_staged()
    else:
        execute(countries.dsn, loss)
    decide(countries, ActionKind.RELEASE)

    again = refresh(countries)

    assert again.route == ["hold"], "the approval was of other rows"
    assert target.copied() == (ROWS, 400)
    decide(countries, ActionKind.RELEASE)
    assert refresh(countries).route == ["done"]
    assert target.copied() == (400, 400)
    reasons = [
        event["detail"]["reason"] for event in countries.ledger.events("countries") if event["kind"] == "refresh_begun"
    ]
    assert reasons[2] == "rows of generation 2 were skipped, or lost after they were staged"


@EVERY_SINK
def test_a_refresh_without_rows_that_is_skipped_leaves_the_target(
    countries: Replication, target: RefreshedTarget
) -> None:
    refresh(countries)
    execute(countries.dsn, "CREATE TABLE kept AS TABLE countries", "TRUNCATE countries")

    assert refresh(countries).route == ["hold"]
    assert target.copied() == (ROWS, 0)
    decide(countries, ActionKind.SKIP)
    execute(countries.dsn, "INSERT INTO countries SELECT * FROM kept WHERE id <= 600")

    assert refresh(countries).route == ["done"]
    assert target.copied() == (600, 600)
    execute(countries.dsn, "TRUNCATE countries")
    assert refresh(countries.changed(sink={"replace": {"allow_empty": True}})).route == ["done"]
    assert target.copied() == (0, 0)


@pytest.mark.parametrize("resend", [False, True])
@pytest.mark.parametrize("target", ["delta", "iceberg"], indirect=True)
def test_a_restored_table_is_refused_until_a_person_accepts_it_and_is_then_refreshed(
    countries: Replication, target: RefreshedTarget, resend: bool
) -> None:
    assert isinstance(target, LakeTarget)
    refresh(countries)
    target.restore()

    with pytest.raises(SinkChangedError, match="was restored or rolled back"):
        refresh(countries)
    assert target.copied() == (OLD_ROWS, 0)
    setup = countries.setup()
    context = ActionContext(countries.ledger, "countries", lambda: setup, "ann", "restored")
    assert change_sink(context, make_acceptance(setup, resend=resend))["applied"]

    assert refresh(countries).route == ["done"]
    assert target.copied() == (ROWS, ROWS)
    audit = audit_sink(countries.setup(), lambda _: None)
    assert (audit["agrees"], audit["differences"]) == (True, [])
    assert "sink.mode: replace" in audit["compared"]["target_rows_unknown"]


def test_rows_that_the_target_refuses_are_dead_letters_and_the_others_are_published(countries: Replication) -> None:
    execute(countries.dsn, "ALTER TABLE copied ADD CHECK (id <> 7), ADD gap bigint GENERATED ALWAYS AS (id * 2) STORED")

    summary = refresh(countries)

    assert summary.records == Counts(ROWS, ROWS - 1, 0, 1)
    assert summary.route == ["dead_letters", "done"]
    assert scalar(countries.dsn, "SELECT count(*) FROM copied WHERE gap = id * 2") == ROWS - 1
    assert scalar(countries.dsn, "SELECT headers ->> 'x-ckpt-source-position' FROM ckpt_sink_dead_letter") == "0"


def test_a_refresh_cancels_a_replay_that_would_deliver_its_records_twice(
    countries: Replication, target: RefreshedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(countries.dsn, "ALTER TABLE copied DROP CONSTRAINT copied_pkey, ADD CONSTRAINT small CHECK (id <> 7)")
    refresh(countries)
    execute(countries.dsn, "ALTER TABLE copied DROP CONSTRAINT small")
    action = make_action(countries.setup(), ActionKind.REPLAY_DEAD_LETTERS, Selection())
    countries.ledger.action("countries", action, actor="ann", reason="mended")
    deliver, failed = PostgresWriter.deliver, list[BatchTask]()

    def fail_first(writer: PostgresWriter, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        if task.key.is_side_partition and not failed:
            failed.append(task)
            error = ErrorInfo(ErrorType.SINK, "not now", recoverable=True, sqlstate="40001")
            return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error)
        return deliver(writer, task, content)

    monkeypatch.setattr(PostgresWriter, "deliver", fail_first)
    summary = refresh(countries.changed(retry={"initial_delay_ms": 3000}))

    assert (summary.route, target.copied()) == (["done"], (ROWS, ROWS))
    assert countries.ledger.audit("countries")["ok"]
    assert [entry.state for entry in countries.ledger.dead_letter_index("countries").entries] == ["parked"]


def test_dead_letters_of_a_refresh_can_be_stored_as_files(
    countries: Replication, target: RefreshedTarget, tmp_path: Path
) -> None:
    execute(countries.dsn, "ALTER TABLE copied ADD CHECK (id <> 7)")
    elsewhere = countries.changed(dead_letter_queue={"sink": "files", "path": str(tmp_path / "dead")})

    summary = refresh(elsewhere)

    assert summary.records == Counts(ROWS, ROWS - 1, 0, 1)
    assert target.copied() == (ROWS - 1, ROWS - 1)
    with closing(elsewhere.setup().open_sink()) as sink:
        attempts = [AttemptKey(BatchKey(1, SOURCE, seq), 1, 1) for seq in range(20)]
        [stored] = sink.dead_letters(attempts)
    assert stored.dead_letter.error.sqlstate == "23514"


def test_a_foreign_key_that_a_refresh_would_break_halts_the_run_and_leaves_the_target(
    countries: Replication, target: RefreshedTarget
) -> None:
    refresh(countries)
    execute(
        countries.dsn,
        "CREATE TABLE cities (country bigint REFERENCES copied DEFERRABLE INITIALLY DEFERRED)",
        "INSERT INTO cities VALUES (5)",
        "DELETE FROM countries WHERE id = 5",
    )

    with pytest.raises(CkptError, match="cities") as refused:
        refresh(countries)
    assert refused.value.batch is not None
    assert target.copied() == (ROWS, ROWS - 1)

    execute(countries.dsn, "DELETE FROM cities")
    assert refresh(countries).route == ["done"]
    assert target.copied() == (ROWS - 1, ROWS - 1)


def test_the_sink_publishes_only_what_is_complete_and_only_for_the_newest_epoch(
    countries: Replication, target: RefreshedTarget
) -> None:
    with acquire(countries.setup()) as run:
        context = SinkContext(countries.ledger.id, "countries")
        assert isinstance(run.sink, PostgresReplacingSink)
        run.sink.prepare_staging(run.epoch, 1, None)
        receipt = (
            f"INSERT INTO ckpt_sink_receipt VALUES ('{context.ledger}', 'countries', 1, '{SOURCE}', {{}}, {{}}, {{}},"
            f" '{{}}', {run.epoch}, 1, {{}}, {{}}, 0, 0)"
        )
        stage = "INSERT INTO ckpt_stage_1_copied SELECT * FROM countries WHERE id"
        execute(countries.dsn, receipt.format(0, 0, 4, "delivered", 2, 2), f"{stage} <= 2")
        task = BatchTask(BatchKey(1, SOURCE, 9), Range(6, 7), 1)

        def refused() -> str:
            outcome = run.sink.publish(task, run.epoch, None)  # type: ignore[attr-defined]
            assert outcome.outcome is AttemptOutcome.FAILED
            assert scalar(countries.dsn, "SELECT count(*) FROM copied") == OLD_ROWS
            return str(outcome.error.message)

        assert "[4, 6)" in refused()
        execute(countries.dsn, receipt.format(1, 4, 6, "void", 0, 0))
        assert "[4, 6)" in refused()
        execute(
            countries.dsn, "UPDATE ckpt_sink_receipt SET verdict = 'delivered', read = 1, delivered = 1 WHERE seq = 1"
        )
        assert "count 3 rows, and 2 are staged" in refused()
        execute(countries.dsn, f"{stage} = 3")

        run.sink.fence(run.epoch + 1)
        with pytest.raises(FencedError):
            run.sink.publish(task, run.epoch, None)
        with pytest.raises(FencedError):
            run.sink.prepare_staging(run.epoch, 1, None)
        assert (scalar(countries.dsn, "SELECT count(*) FROM copied"), target.staged()) == (OLD_ROWS, 1)

        held = run.sink.publish(task, run.epoch + 1, ReplaceLimits())
        assert (held.outcome, target.copied()) == (AttemptOutcome.NOT_ATTEMPTED, (OLD_ROWS, 0))
        first, second = (run.sink.publish(task, run.epoch + 1, None) for _ in range(2))
        assert (first.receipt_existed, second.receipt_existed) == (False, True)
        assert first.receipt == second.receipt
        assert target.copied() == (3, 3)


def test_a_session_that_reads_a_staging_table_holds_up_no_refresh(
    countries: Replication, target: RefreshedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacing_sink, "_LOCK_TIMEOUT", "300ms")
    with acquire(countries.setup()) as run, closing(psycopg2.connect(countries.dsn)) as backup:
        assert isinstance(run.sink, PostgresReplacingSink)
        run.sink.prepare_staging(run.epoch, 1, None)
        task = BatchTask(BatchKey(1, SOURCE, 0), Range(0, 1), 1)
        with ThreadPoolExecutor(1) as pool, backup.cursor() as cursor:
            cursor.execute("SELECT * FROM ckpt_stage_1_copied")
            try:
                assert pool.submit(run.sink.publish, task, run.epoch, None).result(8).receipt is not None
                execute(countries.dsn, "SET lock_timeout = '1s'", "DELETE FROM copied")
                pool.submit(run.sink.prepare_staging, run.epoch, 2, None).result(8)
            finally:
                backup.rollback()
        assert (target.rows(), target.staged()) == ([], 2)
        run.sink.prepare_staging(run.epoch, 3, None)
        assert target.staged() == 1


def test_the_snapshot_keeps_the_pages_and_the_rows(countries: Replication) -> None:
    with closing(PostgresFullSource(countries.pipeline, connection_to(countries.dsn))) as source:
        first = source.begin_refresh(SOURCE)
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            execute(countries.dsn, "SET lock_timeout = '50ms'; TRUNCATE countries")
        second = source.begin_refresh(SOURCE)

        assert (source.holds_snapshot(first.snapshot), source.holds_snapshot(second.snapshot)) == (False, True)
        task = BatchTask(BatchKey(1, SOURCE, 0), Range(0, 1), 1)
        [located] = source.locate([task], [])
        assert located.detail["snapshot"] == second.snapshot
        execute(
            countries.dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'ckpt-snap%'",
        )
        with pytest.raises(CkptError, match="snapshot") as ended:
            source.locate([task], [])
        assert ended.value.recoverable


def test_a_refresh_does_not_pause_since_it_would_lose_its_snapshot(countries: Replication) -> None:
    class AlwaysPauses(Turn):
        def must_pause(self, seconds_used: float, seconds_idle: float) -> bool:
            return True

    summary = replicate(replace(countries.setup(), turn=AlwaysPauses()), PlainEngine())

    assert summary.records.delivered == ROWS
