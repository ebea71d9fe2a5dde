"""The documented privileges suffice for a MariaDB sink and source, and the privilege PROCESS is necessary."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.connectors.sql.source import SqlSource
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.testing.sink_harness import Run, content, ids, task
from tests.integration.connectors.sql.sql_support import MariaDb, pipeline
from tests.integration.connectors.sql.test_replacing_sink import Refresh
from tests.integration.connectors.sql.test_sink import TargetHarness
from tests.services.docs import blocks_of


def test_the_rights_of_the_documentation_are_enough(mariadb: MariaDb) -> None:
    (block,) = (block for block in blocks_of("docs/sql.rst") if block.language == "sql")
    grants = [line for line in block.text.splitlines() if line.startswith("GRANT")]
    for user in ("ckpt", "ckpt_reader"):
        mariadb.execute(f"CREATE OR REPLACE USER {user}_docs@'127.0.0.1' IDENTIFIED BY 'd'")
    for grant in grants:
        named = grant.replace("reports.", f"{mariadb.name}.").replace("shop.", f"{mariadb.name}.")
        statement, _, user = named.rstrip(";").rpartition(" ")
        mariadb.execute(f"{statement} {user}_docs@'127.0.0.1'")
    harness = TargetHarness(mariadb, "int NOT NULL PRIMARY KEY", mode="upsert", key=["id"])
    mariadb.connection = replace(mariadb.connection, login="ckpt_docs", password="d")
    with Run(harness, 1) as old, Run(harness, 2) as new:
        assert old.take_over().send(task(0), content(0, rejected=1)).outcome is AttemptOutcome.DELIVERED
        assert new.take_over().send(task(0), content(0)).receipt_existed
    assert harness.target() == ids(0)[1:]
    with Refresh(mariadb, 3) as refresh:
        assert refresh.stage(0, 1).publish(2).outcome is AttemptOutcome.DELIVERED
    assert harness.target() == ids(0, 1)
    mariadb.execute("DELETE FROM target WHERE id < 11")

    reader = replace(mariadb.connection, login="ckpt_reader_docs")
    with closing(SqlSource(pipeline(source={"table": "target", "close_wait": "30s"}), reader)) as source:
        source.check()
        plan = source.plan(PlanRequest([RangeToPlan(source.partitions()[0].id, START)], None, 100))
    assert [batch.records for batch in plan.batches] == [9]
