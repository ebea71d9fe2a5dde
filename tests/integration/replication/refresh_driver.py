"""Processes that refresh a table without Spark, and kill themselves; see ``test_refresh_crashes.py``."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from airflow_provider_ckpt.connectors.delta.table_version import DeltaVersion
from airflow_provider_ckpt.connectors.iceberg.table_version import IcebergVersion
from airflow_provider_ckpt.connectors.postgres.page_copy import PostgresPageCopy
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.replacing_sink import PostgresReplacingSink
from airflow_provider_ckpt.connectors.postgres.row_count import RowCounter
from airflow_provider_ckpt.connectors.postgres.staging_writer import PostgresStagingWriter
from airflow_provider_ckpt.connectors.sql import replacing_sink
from airflow_provider_ckpt.connectors.sql.replacing_sink import SqlReplacingSink
from airflow_provider_ckpt.connectors.sql.staging_writer import SqlStagingWriter
from airflow_provider_ckpt.connectors.two_phase import replacement
from airflow_provider_ckpt.connectors.two_phase.committer import TableCommitter
from airflow_provider_ckpt.connectors.two_phase.replaceable_version import ReplaceableVersion
from airflow_provider_ckpt.connectors.two_phase.replacement import ReplacesTable
from airflow_provider_ckpt.connectors.two_phase.writer import TableWriter
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
from airflow_provider_ckpt.replication.run.refresh import Refresh
from airflow_provider_ckpt.replication.run.replicate import replicate
from tests.chaos.crash_points.run_spec import RunSpec
from tests.services.plain_engine import PlainEngine

_LANE_BATCHES = 3


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _before(owner: Any, name: str, calls: int = 1) -> None:
    """Die when a method is called for the n-th time, before it does anything."""
    original, left = getattr(owner, name), [calls]

    def called(*given: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            _die()
        return original(*given, **named)

    setattr(owner, name, called)


def _after(owner: Any, name: str) -> None:
    """Die when a method has returned."""
    original = getattr(owner, name)

    def called(*given: Any, **named: Any) -> Any:
        original(*given, **named)
        _die()

    setattr(owner, name, called)


def _in_raw_copy() -> None:
    """Die in a lane between COPY and the commit of raw rows."""
    check, left = RowCounter.check.fget, [_LANE_BATCHES]  # type: ignore[attr-defined]

    def called(counter: RowCounter) -> str:
        left[0] -= 1
        if left[0] == 0:
            _die()
        return str(check(counter))

    RowCounter.check = property(called)  # type: ignore[assignment,method-assign]


def _in_writer() -> None:
    """Die in a lane between the rows and the commit of records, which are not copied raw."""
    PostgresPageCopy.read = lambda *_: None  # type: ignore[method-assign]
    _before(PostgresStagingWriter, "_complete", _LANE_BATCHES)


def _of_every_sink(sink: type) -> Mapping[str, Callable[[], None]]:
    """Return the crash points that do not depend on how a sink stages and publishes.

    :param sink: class with the methods of :class:`~.sink_protocol.ReplacingSink`
    """
    return {
        "none": lambda: None,
        "before the staging is prepared": lambda: _before(sink, "prepare_staging"),
        "between staging and publishing": lambda: _before(Refresh, "publish"),
        "before the publishing transaction": lambda: _before(sink, "publish"),
        "after publishing, before settling": lambda: _after(sink, "publish"),
    }


def _of_tables(version: type[ReplaceableVersion]) -> Mapping[str, Callable[[], None]]:
    """Return the crash points of a table format.

    :param version: class of its versions
    """
    return {
        **_of_every_sink(ReplacesTable),
        "lane, before it writes": lambda: _before(TableWriter, "_stage", _LANE_BATCHES),
        "lane, staged without a receipt": lambda: _before(TableCommitter, "_attempt"),
        "wave, staged and not settled": lambda: _after(TableCommitter, "commit"),
        "before the publishing commit": lambda: _before(version, "replace"),
        "after staged files were removed": lambda: _after(replacement, "remove_files"),
        "after the publishing commit": lambda: _after(version, "replace"),
    }


CRASH_POINTS: Mapping[str, Mapping[str, Callable[[], None]]] = {
    "postgres": {
        **_of_every_sink(PostgresReplacingSink),
        "lane, in the transaction of raw rows": _in_raw_copy,
        "lane, in the transaction of records": _in_writer,
        "in the publishing transaction": lambda: _before(BookkeepingTables, "store_added"),
    },
    "sql": {
        **_of_every_sink(SqlReplacingSink),
        "lane, in the transaction of rows": lambda: _before(SqlStagingWriter, "_complete", _LANE_BATCHES),
        "while the staging is prepared": lambda: _after(replacing_sink, "drop_table"),
        "in the publishing transaction": lambda: _after(SqlReplacingSink, "_replace_rows"),
        "after publishing, before the staging table is dropped": lambda: _before(SqlReplacingSink, "_remove_published"),
    },
    "delta": _of_tables(DeltaVersion),
    "iceberg": _of_tables(IcebergVersion),
}
"""Crash points by type of the sink."""


def main() -> None:
    """Run each spec on standard input in a process of its own, and say on standard output how that ended.

    A line has a crash point, or milliseconds after which the process dies, and a spec. The processes are forked from
    this one, which has imported everything.
    """
    for module in ("adbc_driver_postgresql.dbapi", "psycopg2.extras", "pyarrow.compute", "pyarrow.parquet"):
        import_module(module)
    for line in sys.stdin:
        point, spec = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(point, RunSpec.from_json(spec))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(point: str, spec: RunSpec) -> None:
    """Refresh, unless the crash point is reached, and end the process."""
    try:
        if point.isdecimal():
            threading.Timer(int(point) / 1000, _die).start()
        else:
            CRASH_POINTS[spec.document["sink"]["type"]][point]()
        with Ledger.open(spec.ledger) as ledger:
            replicate(spec.setup(ledger, of_this_process()), PlainEngine())
    except BaseException:  # noqa: BLE001  # the process's boundary
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
