"""What docs/connection.rst and docs/observability.rst show is so."""

from __future__ import annotations

import configparser
import re
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest
from airflow.cli.cli_parser import get_parser

from airflow_provider_ckpt.ledger_location import locate_ledger
from airflow_provider_ckpt.replication.metrics import COUNTERS, TIMERS, Metric

DOCS = Path(__file__).parents[3] / "docs"
CONNECTION = (DOCS / "connection.rst").read_text("utf-8")
OBSERVABILITY = (DOCS / "observability.rst").read_text("utf-8")


@pytest.mark.parametrize("value", re.findall(r"AIRFLOW_CONN_CKPT_DEFAULT='([^']+)'", CONNECTION))
def test_each_way_to_name_the_ledger_names_one(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", value)

    found = locate_ledger()

    assert (
        found.where == "SQLite file /var/lib/airflow/ckpt.db"
        if "/var/lib" in value
        else "db.example.com" in found.where
    )


@pytest.mark.parametrize("line", re.findall(r"^   \$ .*airflow (ckpt db [^|\n]+?)(?: \||\n)", CONNECTION, re.MULTILINE))
def test_its_commands_can_be_called(line: str) -> None:
    assert callable(get_parser().parse_args(line.split()).func)


def test_its_backend_is_one() -> None:
    [block] = re.findall(r"code-block:: ini\n\n((?:   .*\n|\n)+)", CONNECTION)
    settings = configparser.ConfigParser()
    settings.read_string(dedent(block))
    module, _, name = settings["secrets"]["backend"].rpartition(".")

    assert hasattr(import_module(module), name)


def test_every_metric_is_told_with_its_kind() -> None:
    rows = re.findall(r"   \* - (.*)\n     - (counter|gauge|timer)\n", OBSERVABILITY)
    told = {name: kind for names, kind in rows for name in re.findall(r"``([^`]+)``", names)}

    assert told == {
        metric.value: "counter" if metric in COUNTERS else "timer" if metric in TIMERS else "gauge" for metric in Metric
    }
