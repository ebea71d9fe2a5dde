"""Airflow finds all parts of the provider, without a warning, and lists them under the expected names."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager

_TOLD = """
from airflow.cli.cli_parser import get_parser
for words in (
    "providers get airflow-provider-ckpt --full",
    "providers hooks",
    "providers triggers",
    "providers links",
    "providers configs",
    "config list --section ckpt",
):
    args = get_parser().parse_args([*words.split(), *(() if words.startswith("config") else ("-o", "json"))])
    print("###", words)
    args.func(args)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of Airflow's commands about the provider, by command; one process runs them all."""
    home = {"AIRFLOW_HOME": str(tmp_path_factory.mktemp("home")), "PATH": str(Path(sys.executable).parent)}
    done = subprocess.run([sys.executable, "-c", _TOLD], capture_output=True, text=True, env=home, check=False)
    assert done.returncode == 0, done.stderr
    assert "ckpt" not in "\n".join(line for line in done.stderr.splitlines() if "WARN" in line.upper())
    parts = done.stdout.split("### ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_the_command_line_lists_it(told: dict[str, str]) -> None:
    assert "airflow-provider-ckpt" in told["providers get airflow-provider-ckpt --full"]
    assert "ckpt_conn_id" in told["providers hooks"]
    for trigger in ("next_round", "condition", "start_on_lag"):
        assert f"airflow_provider_ckpt.triggers.{trigger}" in told["providers triggers"]
    assert "airflow_provider_ckpt.links.pipeline.PipelineLink" in told["providers links"]
    assert "airflow-provider-ckpt" in told["providers configs"]
    assert "[ckpt]" in told["config list --section ckpt"]
    assert "sql_alchemy_conn" in told["config list --section ckpt"]


def test_nothing_that_it_names_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    manager = ProvidersManager()  # type: ignore[no-untyped-call]
    runtime = _task_runtime(manager)

    assert "airflow_provider_ckpt.links.pipeline.PipelineLink" in manager.extra_links_class_names
    assert "ckpt" in runtime.asset_uri_handlers
    assert callable(runtime.taskflow_decorators["ckpt_batch"])
    assert [record.getMessage() for record in caplog.records if "ckpt" in record.getMessage()] == []


def _task_runtime(manager: ProvidersManager) -> Any:
    """Return what tasks ask for providers' parts; before Airflow 3.2 they ask the manager of all processes."""
    try:
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
    except ModuleNotFoundError:
        return manager
    return ProvidersManagerTaskRuntime()  # type: ignore[no-untyped-call]
