"""The one Airflow of these tests; they all run in one process, so that it is started once (see ``placement.py``)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.airflow import AirflowServices
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.warm_spark import WarmSpark
from tests.system.airflow.deployment import Declared, Deployment, Kind

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
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "60",
    "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
}
"""A dead worker or triggerer is missed after seconds, not minutes; a scheduler when a test says so."""


@pytest.fixture(scope="package")
def deployment(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Deployment]:
    """Metadata, ledger and targets are databases of one server; the ledger is named by the configuration."""
    home, dags, data = (tmp_path_factory.mktemp(name) for name in ("home", "dags", "data"))
    (home / "plugins").mkdir()
    shutil.copy(Path(__file__).with_name("preloaded.py"), home / "plugins")
    for name in ("replication.py", "recovery.py"):
        shutil.copy(Path(__file__).with_name(name), dags)
    metadata, ledger, store = (postgres_server.new_database() for _ in range(3))
    env = {
        "AIRFLOW_CONN_STORE": store,
        "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": sqlalchemy_url(ledger),
        "TMPDIR": str(tmp_path_factory.mktemp("tmp")),
        **{f"AIRFLOW__{name}": value for name, value in _QUICK.items()},
    }
    warm = WarmSpark(tmp_path_factory.mktemp("runtime"))
    airflow = AirflowServices(
        home,
        dags,
        {**env, **warm.environment},
        triggerer=True,
        metadata=sqlalchemy_url(metadata),
        users=USERS,
    )
    made = Deployment(airflow, data, dags, store=store, ledger_dsn=ledger, metadata=metadata)
    made.declare(PIPELINES)
    with warm, airflow:
        yield made


@pytest.fixture(scope="package")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for screenshots: that of the environment variable SCREENSHOTS, or a temporary one."""
    return Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
