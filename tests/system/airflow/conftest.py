"""Fixtures with the Airflow of these tests. All of them run in one process, so that it is started once.

Most tests wait most of their time: for a scheduler, a heartbeat, or the start of Spark. The tests of a module with the
mark ``beside`` run in threads from the start of this Airflow on, beside the others; when it is their turn, they only
report the result. Each of them has its own pipeline, and uses no other fixture than ``deployment``. See also
``placement.py``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import cast

import pytest

from tests.services.airflow import AirflowServices
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.statsd import StatsdServer
from tests.services.warm_airflow import airflow_in
from tests.services.warm_spark import WarmSpark
from tests.system.airflow import many_tables, shop
from tests.system.airflow.deployment import Declared, Deployment, Kind
from tests.system.airflow.ledgers import NamedLedgers, named_ledgers

ROOT = Path(__file__).parents[3]

USERS = {"ada": "admin", "oscar": "user", "vera": "viewer"}
PIPELINES = [
    Declared("cleared", Kind.FOLLOWED),
    Declared("marked", Kind.SINGLE, cold=True),
    Declared("backfilled", Kind.DAILY),
    Declared("killed", Kind.SINGLE, cold=True),
    Declared("doubled", Kind.GROUPED),
    Declared("expired", Kind.SINGLE, ttl=3, cold=True),
    Declared("dead_at_submit", Kind.GROUPED, cold=True),
    Declared("dead_before_settle", Kind.DEFERRED, cold=True),
    Declared("dead_after_settle", Kind.GROUPED, cold=True),
    Declared("headless", Kind.GROUPED, cold=True),
    Declared("orphaned", Kind.GROUPED, cold=True),
    Declared("unwatched", Kind.DEFERRED, delay=30_000),
    Declared("rested", Kind.GROUPED, ttl=5),
    Declared("renewed", Kind.DEFERRED, ttl=15, delay=60_000),
    Declared("overtaken", Kind.DEFERRED, ttl=15, delay=600_000),
    Declared("stopped", Kind.SINGLE),
    Declared("stuck", Kind.SINGLE),
    Declared("guarded", Kind.SINGLE),
    Declared("visits", Kind.FOLLOWED),
]
_QUICK = {
    "CORE__PARALLELISM": "8",
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "600",
    "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
}
"""A dead worker or triggerer is missed after seconds, not minutes; a scheduler when a test says so."""

_BESIDE = "beside"
_AT_ONCE = 2
"""Tests that are played beside the one whose turn it is."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let those that are played beside others tell last, and then those that disturb the services themselves."""
    last = {"test_restarts.py": 2}
    here = Path(__file__).parent
    own = [item for item in items if item.path.parent == here]
    if own:
        at = items.index(own[0])
        own.sort(key=lambda item: last.get(item.path.name, int(_is_beside(item))))
        items[:] = [*items[:at], *own, *(item for item in items[at:] if item.path.parent != here)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Wait for the result of a test that is played beside others, instead of running it."""
    if not _is_beside(pyfuncitem):
        return None
    _played(pyfuncitem)[pyfuncitem.nodeid].result()
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Let the threads end before a failure is described: Python 3.11 parses syntax trees in one thread at a time."""
    if call.excinfo is not None and isinstance(item, pytest.Function):
        wait(_played(item).values())


@pytest.fixture(scope="package", autouse=True)
def beside(request: pytest.FixtureRequest, deployment: Deployment) -> Iterator[Mapping[str, Future[None]]]:
    """The results of the chosen tests that are marked so, by node id."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    chosen = [item for item in request.session.items if isinstance(item, pytest.Function) and _is_beside(item)]
    yield {item.nodeid: pool.submit(item.obj, deployment=deployment) for item in chosen}
    pool.shutdown(cancel_futures=True)


def _played(item: pytest.Function) -> Mapping[str, Future[None]]:
    return cast("Mapping[str, Future[None]]", item.funcargs.get("beside", {}))


def _is_beside(item: pytest.Item) -> bool:
    return item.get_closest_marker(_BESIDE) is not None


@pytest.fixture(scope="package")
def statsd() -> Iterator[StatsdServer]:
    """The server that receives the metrics of all processes of the Airflow."""
    with StatsdServer() as server:
        yield server


@pytest.fixture(scope="package")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file to which OpenLineage appends the events of the DAGs that enable them."""
    file = tmp_path_factory.mktemp("lineage") / "events.jsonl"
    file.touch()
    return file


@pytest.fixture(scope="package")
def ledgers(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> NamedLedgers:
    """Ledgers other than that of the configuration, behind a connection each."""
    return named_ledgers(tmp_path_factory.mktemp("ledgers"), postgres_server)


@pytest.fixture(scope="package")
def deployment(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: PostgresServer,
    statsd: StatsdServer,
    lineage: Path,
    ledgers: NamedLedgers,
) -> Iterator[Deployment]:
    """Metadata, ledger and targets are databases of one server; the ledger is named by the configuration."""
    home, dags, data = (tmp_path_factory.mktemp(name) for name in ("home", "dags", "data"))
    (home / "plugins").mkdir()
    shutil.copy(Path(__file__).with_name("preloaded.py"), home / "plugins")
    for name in ("replication.py", "recovery.py", "databases.py"):
        shutil.copy(Path(__file__).with_name(name), dags)
    metadata, ledger, store = (postgres_server.new_database() for _ in range(3))
    env = {
        "AIRFLOW_CONN_STORE": store,
        "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": sqlalchemy_url(ledger),
        "AIRFLOW__OPENLINEAGE__SELECTIVE_ENABLE": "True",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(lineage), "append": True}),
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path_factory.mktemp("tmp")),
        **{f"AIRFLOW__{name}": value for name, value in _QUICK.items()},
        **statsd.env,
        **ledgers.env,
    }
    warm = WarmSpark(tmp_path_factory.mktemp("runtime"))
    programs = tmp_path_factory.mktemp("programs")
    airflow = AirflowServices(
        home,
        dags,
        {**env, **warm.environment},
        triggerer=True,
        metadata=sqlalchemy_url(metadata),
        users=USERS,
        program=[str(programs / "airflow")],
    )
    made = Deployment(airflow, data, dags, store=store, ledger_dsn=ledger, metadata=metadata)
    made.declare(PIPELINES)
    many_tables.declare(dags, store)
    shop.declare(made)
    with airflow_in(programs, airflow.env), warm, airflow:
        yield made
