"""Tests of the modules that a scheduler imports before it forks tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from airflow_provider_ckpt import preload

_CODE = """
import json, sys
from airflow_provider_ckpt.preload import on_starting
before = set(sys.modules)
on_starting(type(sys.argv[2], (), {})())
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded_for(command: str, executor: str, component: str = "Job") -> set[str]:
    """The modules that a new process has imported after a component of Airflow has started in it.

    :param command: the command of Airflow that the process executes
    :param component: name of the component's class
    """
    env = {**os.environ, "AIRFLOW__CORE__EXECUTOR": executor}
    done = subprocess.run(
        [sys.executable, "-c", _CODE, command, component], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_scheduler_that_forks_tasks_imports_what_a_run_needs_and_nothing_that_starts_threads() -> None:
    loaded = loaded_for("scheduler", "LocalExecutor")

    assert {"airflow_provider_ckpt.replication.run.replicate", "airflow_provider_ckpt.ledger.ledger"} <= loaded
    assert not {name.partition(".")[0] for name in loaded} & {
        "numpy",
        "pandas",
        "pyarrow",
        "pyspark",
        "adbc_driver_manager",
    }


def test_other_components_import_nothing() -> None:
    assert loaded_for("triggerer", "LocalExecutor") == set()
    assert loaded_for("scheduler", "LocalExecutor", "TaskRunnerMarker") == set()
    assert loaded_for("scheduler", "airflow.providers.celery.executors.celery_executor.CeleryExecutor") == set()


def test_a_module_that_cannot_be_imported_does_not_stop_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
    monkeypatch.setattr(preload, "_MODULES", ("is_not_there",))
    monkeypatch.setattr(sys, "argv", ["airflow", "scheduler"])

    preload.on_starting(type("Job", (), {})())

    assert "airflow_provider_ckpt.is_not_there cannot be imported" in caplog.text


def test_airflow_finds_the_plugin() -> None:
    (found,) = entry_points(group="airflow.plugins", name="ckpt_preload")

    assert found.load() is preload.CkptPreloadPlugin
