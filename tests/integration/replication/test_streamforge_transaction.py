"""StreamForge's commit failures, applied to the commit of the sink's own transaction.

A broker behind a proxy commits, and its response is lost, once or permanently. The outcome of the batch is then unknown
to the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.receipt import Counts
from tests.chaos.crash_points.servers import Servers
from tests.integration.replication.copying import Copying, make_copying
from tests.services.proxy import Break

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = [b"%d" % number for number in range(100, 110)]

END_TRANSACTION = rb"^....\x00\x1a"
"""First bytes of the request by which a producer ends its transaction: its length, and its kind, 26."""


@pytest.fixture
def copying(spark: SparkSession, servers: Servers) -> Iterator[Copying]:
    """A copy of a topic by way of the proxy; who gets no answer gives up soon."""
    with make_copying(spark, servers.kafka, servers.postgres) as made:
        made.put(BATCH, key=b"k")
        yield made.patient(**{"transaction.timeout.ms": 3000, "socket.timeout.ms": 1000, "retries": 2})
        servers.calm()


def test_scenario_3_commit_failure_transient(copying: Copying, servers: Servers) -> None:
    unanswered = servers.stream.trap(END_TRANSACTION, how=Break.AFTER)

    summary = copying.replication.run()

    assert unanswered.is_set()
    assert summary.records == Counts(10, 10, 0, 0)
    assert copying.delivered() == BATCH


def test_scenario_4_commit_failure_exhausted(copying: Copying, servers: Servers) -> None:
    unanswered = servers.stream.trap(END_TRANSACTION, how=Break.AFTER, refuse=True)

    with pytest.raises(CkptError) as halted:
        copying.replication.run()
    servers.stream.accept()
    again = copying.replication.run()

    assert unanswered.is_set()
    assert halted.value.is_outage
    assert (again.records, again.spark_started) == (Counts(10, 10, 0, 0), False)
    assert (copying.delivered(), copying.delivered("read_uncommitted")) == (BATCH, BATCH)
