"""Importing the plugin is fast, since Airflow does it in every process."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, time
import airflow.plugins_manager
before = set(sys.modules)
started = time.process_time()
from airflow_provider_ckpt.plugin import CkptPlugin
CkptPlugin()
took = time.process_time() - started
fresh = {name.partition(".")[0] for name in set(sys.modules) - before}
heavy = fresh & {"fastapi", "starlette", "sqlalchemy", "pydantic", "yaml"}
print(sorted(heavy), took * 1000)
"""

SCHEDULER = """
import sys
from airflow import plugins_manager
for name in ("integrate_macros_plugins", "get_timetables_plugins", "get_priority_weight_strategy_plugins",
             "get_operator_extra_links", "get_global_operator_extra_links"):
    getattr(plugins_manager, name, lambda: None)()
plugins_manager.ensure_plugins_loaded()
assert "airflow_provider_ckpt.plugin" in sys.modules
print(sorted(name for name in sys.modules if name == "fastapi" or name.startswith("airflow_provider_ckpt.api")))
"""
"""Program that loads plugins as scheduler, DAG processor and workers do; prints the heavy modules among its imports."""


def test_loading_the_plugin_imports_nothing_heavy_and_takes_at_most_5_ms() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True).stdout.splitlines()[-1]
        for _ in range(2)
    ]
    heavy, milliseconds = zip(*(line.rsplit(" ", 1) for line in runs), strict=True)
    assert set(heavy) == {"[]"}
    assert min(map(float, milliseconds)) <= 5


def test_what_other_processes_than_the_api_server_ask_of_plugins_does_not_make_the_app() -> None:
    done = subprocess.run([sys.executable, "-c", SCHEDULER], check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "[]"
