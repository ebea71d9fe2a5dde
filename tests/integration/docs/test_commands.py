"""Every command that a page of the documentation shows works on a machine in the state that the page assumes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from packaging.requirements import Requirement

from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.setup import PipelineContext, utcnow
from tests.integration.docs.printed import elsewhere
from tests.integration.docs.reader import Reader
from tests.integration.ledger.ledger_driver import TTL, LedgerDriver
from tests.services.docs import ROOT, Block, every_block
from tests.services.replication import connection_to
from tests.services.tables import execute, scalar
from tests.services.terminal import commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 200
SHOP = f"""
    CREATE TABLE orders (id bigint PRIMARY KEY, status text, customer_id int, amount text, ordered_at timestamptz);
    INSERT INTO orders SELECT i, CASE i % 10 WHEN 0 THEN 'draft' ELSE 'paid' END, i % 7, i, now()
      FROM generate_series(1, {ORDERS}) AS i
"""
WAREHOUSE = """
    CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, amount numeric, ordered_at timestamptz,
      CONSTRAINT small CHECK (amount <> 175))
"""
NOT_RUN = [block for block in every_block() if block.language == "console" and elsewhere(block)]
FOLLOWED: set[str] = set()
"""The pages whose commands a test types."""


def page(name: str) -> pytest.MarkDecorator:
    """A test that types a page's commands."""
    FOLLOWED.add(name)
    return pytest.mark.parametrize("page", [name], ids=lambda found: Path(found).stem)


class Orders:
    """Pipeline ``orders`` of the repository's DAGs, in batches of ten; its runs are on a warm Spark."""

    def __init__(self, reader: Reader, spark: SparkSession) -> None:
        self.reader = reader
        self.spark = spark
        self.shop, self.warehouse = reader.database("shop", SHOP), reader.database("warehouse", WAREHOUSE)
        self.file = reader.here / "dags/pipelines/orders.yaml"
        self.file.parent.mkdir(parents=True)
        self.declare()
        reader.airflow("ckpt db migrate")

    def declare(self, **keys: object) -> None:
        """Write the declaration, with further keys."""
        declared = yaml.safe_load((ROOT / "dags/pipelines/orders.yaml").read_text())
        declared["commit_strategy"]["commit_interval"] = 10
        quick = {"run": {"conf": {"spark.master": "local[1]"}}, "recovery": {"settle_lag": 0}}
        self.file.write_text(yaml.safe_dump({**declared, **quick, **keys}))

    def run(self, *, holding: str = "") -> None:
        """One run; a batch may be held before it is sent."""
        with self.reader.ledger() as ledger:
            setup = PipelineContext(load(self.file), ledger, self._connection, "test:run")
            if holding:
                with acquire(setup) as run:
                    run.plan()
                    run.finish()
                self.reader.airflow(f"ckpt hold orders '{holding}'")
            replicate(setup, SessionEngine(self.spark))

    def busy(self) -> None:
        """Somebody on another machine takes the lease, and keeps it."""
        with self.reader.ledger() as ledger:
            ledger.acquire("orders", "host7:1:1", TTL)

    def released(self) -> None:
        """The held batch is given its attempts back, and sent."""
        self.reader.airflow("ckpt release orders --all")
        self.run()

    def set_back(self) -> None:
        """The sink forgets its newest receipt, as one that was restored does."""
        newest = "SELECT seq FROM ckpt_sink_receipt ORDER BY epoch DESC, seq DESC LIMIT 1"
        execute(self.warehouse, f"DELETE FROM ckpt_sink_receipt WHERE seq = ({newest})")

    def lost(self) -> Mapping[str, str]:
        """The ledger is gone; what names it in the sink."""
        with self.reader.ledger() as ledger:
            found = ledger.sink_id("orders")
        (self.reader.here / "ledger.db").unlink()
        return {"5f0c0d52-…": found}

    def mended(self) -> None:
        """Drop the constraint that kept a row out of the target."""
        execute(self.warehouse, "ALTER TABLE orders DROP CONSTRAINT small")

    def renewed(self) -> None:
        """A ledger that can go back: it has adopted nothing."""
        (self.reader.here / "ledger.db").unlink()
        self.reader.airflow("ckpt db migrate")

    def _connection(self, name: str) -> Connection:
        return connection_to(self.shop if name == "shop" else self.warehouse, name)


@page("docs/runbook.rst")
def test_the_runbook(page: str, reader: Reader, spark: SparkSession) -> None:
    orders = Orders(reader, spark)
    orders.run(holding="public.orders#17")

    def rewound() -> Mapping[str, str]:
        orders.released()
        return {"2026-01-31T18:00Z": utcnow().isoformat()}

    reader.follow(
        page,
        {"db downgrade 0001  ": "db downgrade 0001 --yes  "},
        {
            "lease orders --break": orders.busy,
            "rewind orders": rewound,
            "accept-sink orders": orders.set_back,
            "adopt orders": orders.lost,
            "dlq list": orders.mended,
            "db downgrade": orders.renewed,
        },
    )

    assert scalar(orders.warehouse, "SELECT count(*) FROM orders") == ORDERS * 9 // 10


@page("docs/connection.rst")
def test_the_connection(page: str, reader: Reader) -> None:
    reader.database("ledger")
    reader.database("shop", "CREATE TABLE orders (id bigint)")
    asked = r"-c '\password ckpt_runtime'"
    others = {
        asked: rf"{asked} <<< $'one\none\ntwo\ntwo'",
        "ckpt_owner@db.example.com": f"ckpt_owner:one@127.0.0.1:{reader.server.port}",
    }

    reader.follow(page, others)

    runtime = reader.server.database_dsn("ledger", "ckpt_runtime", "two")
    assert execute(runtime, "SELECT * FROM ckpt_pipeline") == []
    may_write = "SELECT has_table_privilege('ckpt_writer', 'orders', 'INSERT')"
    assert scalar(reader.server.database_dsn("shop"), may_write) is True


@page("docs/install.rst")
def test_the_installation(page: str, reader: Reader) -> None:
    extras_exist("airflow-provider-ckpt[delta,kafka]")
    reader.follow(page, {"pip install 'airflow-provider-ckpt[delta,kafka]'": "true"})

    assert "revision" in reader.airflow("ckpt db check")


@page("docs/configuration.rst")
def test_the_configuration(page: str, reader: Reader) -> None:
    reader.follow(page)

    assert "db.example.com/ledger" in reader.airflow("config get-value ckpt sql_alchemy_conn")


@page("docs/engines.rst")
def test_where_spark_runs(page: str, reader: Reader) -> None:
    reader.airflow("db migrate")

    reader.follow(page)

    assert "spark_connect" in reader.airflow("connections get spark_server -o plain")


@page("docs/kafka.rst")
def test_a_topic_that_lost_messages(page: str, reader: Reader) -> None:
    reader.airflow("ckpt db migrate")
    with reader.ledger() as ledger:
        events = LedgerDriver(ledger, pipeline="events").start("events-0")
        events.plan(*range(10, 190, 10), name="events-0")
        ledger.release(events.lease)

    reader.follow(page)

    with reader.ledger() as ledger:
        assert ledger.status("events")["batches"]["skipped"] == 1


@page("docs/recovery.rst")
def test_what_the_audit_trail_keeps(page: str, reader: Reader) -> None:
    reader.airflow("ckpt db migrate")
    with reader.ledger() as ledger:
        ledger.release(LedgerDriver(ledger).start("t").lease)

    reader.follow(page)


@page("docs/schema-changes.rst")
def test_a_change_of_a_table_is_accepted(page: str, reader: Reader, spark: SparkSession) -> None:
    orders = Orders(reader, spark)
    orders.declare(schema={})
    orders.run()

    def altered() -> Mapping[str, str]:
        execute(orders.shop, "ALTER TABLE orders ALTER customer_id TYPE smallint")
        with pytest.raises(SourceError, match="airflow ckpt schema accept orders"):
            orders.run()
        seen = json.loads(reader.airflow("ckpt schema accept orders --dry-run -o json 2>/dev/null"))
        return {"5f0c0d52aa17": seen["fingerprint"]}

    reader.follow(page, before={"schema accept": altered})

    orders.run()
    assert "agreed with the shop" in reader.airflow("ckpt schema history orders -o json")


@pytest.mark.parametrize("block", NOT_RUN, ids=str)
def test_a_command_that_is_not_run_can_be_called(block: Block) -> None:
    for shown in commands(block):
        subprocess.run(["bash", "-n", "-c", shown.command], check=True)
        words = shlex.split(shown.command, comments=True)
        for requirement in re.findall(r"airflow-provider-ckpt\S*", shown.command):
            extras_exist(requirement.strip("'"))
        if words[0] == "make":
            subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, check=True, capture_output=True)
        if words[:2] == [".venv/bin/python", "-m"]:
            takes_options(words[2], words[3:])


def extras_exist(requirement: str) -> None:
    """Check that the extras named in a requirement of pip exist."""
    wanted = Requirement(requirement)
    assert wanted.extras <= set(metadata(wanted.name).get_all("Provides-Extra") or ())


def takes_options(module: str, arguments: list[str]) -> None:
    """Check that a module accepts these options and values."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {word for word in arguments if word.startswith("--")} <= set(re.findall(r"--\w+", done.stdout))
