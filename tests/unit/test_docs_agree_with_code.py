"""The documentation of connections, options, classes, metrics and semantics agrees with the code."""

from __future__ import annotations

import configparser
import re
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

from airflow_provider_ckpt.ledger_location import locate_ledger
from airflow_provider_ckpt.provider_info import get_provider_info
from airflow_provider_ckpt.replication.metric_names import COUNTERS, TIMERS, Metric

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONNECTION = (DOCS / "connection.rst").read_text("utf-8")
OBSERVABILITY = (DOCS / "observability.rst").read_text("utf-8")
API, OPERATORS, SENSORS = ((DOCS / f"{page}.rst").read_text("utf-8") for page in ("api", "operators", "sensors"))
INFO = get_provider_info()
REFERENCE = re.compile(r"semantics, (?:sections? )?(\d[\d.]*(?:(?:, | and | to )\d[\d.]*)*)")
"""A reference to sections of docs/semantics.rst; 4.3 is step 3 of section 4."""


def public(*kinds: str) -> list[str]:
    """Every class of the provider's own of these kinds, by its full name."""
    modules = [name for kind in kinds for item in INFO[kind] for name in item["python-modules"]]
    return [
        f"{module}.{name}"
        for module in modules
        for name, found in vars(import_module(module)).items()
        if isinstance(found, type) and found.__module__ == module and name.startswith("Ckpt")
    ]


@pytest.mark.parametrize("value", re.findall(r"AIRFLOW_CONN_CKPT_DEFAULT='([^']+)'", CONNECTION))
def test_each_way_to_name_the_ledger_names_one(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", value)

    found = locate_ledger()

    assert (
        found.where == "SQLite file /var/lib/airflow/ckpt.db"
        if "/var/lib" in value
        else "db.example.com" in found.where
    )


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


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("operator", "sensor") for name in public(f"{kind}s")]
)
def test_an_operator_or_sensor_has_an_anchor_and_an_example(kind: str, name: str) -> None:
    """As in the official providers: an anchor, text with a marked piece of an example DAG, and the parameters."""
    page = {"operator": OPERATORS, "sensor": SENSORS}[kind]
    section = page.partition(f".. _howto/{kind}:{name.rpartition('.')[2]}:\n")[2].partition(f".. _howto/{kind}:")[0]

    assert f".. autoclass:: {name}\n" in section
    assert ":start-after: [START howto_" in section or ":ref:`howto/" in section


@pytest.mark.parametrize("name", [*public("triggers", "hooks"), *INFO["notifications"]])
def test_the_reference_has_it(name: str) -> None:
    assert f".. autoclass:: {name}\n" in API


def test_every_option_is_told() -> None:
    told = (DOCS / "configuration.rst").read_text("utf-8")

    for section, described in INFO["config"].items():
        for option in described["options"]:
            assert f"``[{section}] {option}``" in told


def sections_referred_to(module: Path) -> set[int]:
    """The sections of docs/semantics.rst to which the docstrings of a module refer."""
    text = " ".join(module.read_text("utf-8").split())
    return {int(number) for found in REFERENCE.findall(text) for number in re.findall(r"(\d+)(?:\.\d+)?", found)}


def test_the_semantics_have_each_section_to_which_the_code_refers() -> None:
    headings = re.findall(r"^(\d+)\. .+\n-+$", (DOCS / "semantics.rst").read_text("utf-8"), re.MULTILINE)
    modules = [module for folder in ("airflow_provider_ckpt", "tests") for module in (ROOT / folder).rglob("*.py")]
    named = {str(module.relative_to(ROOT)): found for module in modules if (found := sections_referred_to(module))}

    missing = {module: found - set(map(int, headings)) for module, found in named.items()}

    assert headings == [str(number) for number in range(1, 11)]
    assert len(named) >= 40
    assert not {module: found for module, found in missing.items() if found}
