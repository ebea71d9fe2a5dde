"""The shipped alert rules are well-formed, and use only metrics that runs report."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

import airflow_provider_ckpt
from airflow_provider_ckpt.replication.metric_names import COUNTERS, TIMERS, Metric
from airflow_provider_ckpt.stats import PREFIX

SHIPPED = Path(airflow_provider_ckpt.__file__).parent / "monitoring"
MAPPINGS: list[dict[str, Any]] = yaml.safe_load((SHIPPED / "statsd_mapping.yaml").read_text())["mappings"]
GROUPS: list[dict[str, Any]] = yaml.safe_load((SHIPPED / "alert_rules.yaml").read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
TAGS = {"pipeline", "partition"}
FUNCTIONS = {"sum", "max", "increase", "delta"}
WORDS = {"by", "or", "and", "unless", "offset"}
DURATION = r"\d+[smhd]"


def kind(metric: Metric) -> str:
    """Its kind, as the mapping calls it."""
    return "counter" if metric in COUNTERS else "observer" if metric in TIMERS else "gauge"


def exported(metric: Metric) -> tuple[str, dict[str, str]]:
    """Return a metric's name and labels as statsd_exporter exports it: the first mapping that matches decides."""
    name = f"airflow.{PREFIX}{metric}"
    for mapping in MAPPINGS:
        parts, wanted = name.split("."), mapping["match"].split(".")
        fits = len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
        if fits and mapping["match_metric_type"] == kind(metric):
            groups = [part for part, want in zip(parts, wanted, strict=True) if want == "*"]

            def filled(text: str, groups: list[str] = groups) -> str:
                return re.sub(r"\$(\d)", lambda found: groups[int(found[1]) - 1], text)

            labels = {key: filled(value) for key, value in mapping.get("labels", {}).items()}
            return filled(mapping["name"]), labels
    raise AssertionError(f"no mapping for {name}")


def series() -> dict[str, list[dict[str, str]]]:
    """All Prometheus metrics by name, with the label sets that they can have."""
    found: dict[str, list[dict[str, str]]] = {}
    for metric in Metric:
        name, labels = exported(metric)
        names = [f"{name}_{part}" for part in ("count", "sum", "bucket")] if metric in TIMERS else [name]
        for each in names:
            found.setdefault(each, []).append(labels)
    return found


def test_every_metric_is_mapped_to_a_name_that_prometheus_likes() -> None:
    names = [exported(metric) for metric in Metric]

    assert len({(name, *labels.items()) for name, labels in names}) == len(Metric)
    for metric, (name, _) in zip(Metric, names, strict=True):
        assert re.fullmatch(r"ckpt(_[a-z]+)+", name)
        assert name.endswith("_total") == (metric in COUNTERS)
        assert metric not in TIMERS or name.endswith("_seconds")


def test_the_rules_are_those_that_were_promised() -> None:
    assert [rule["alert"] for rule in RULES] == [
        "CkptCommitFailureRateHigh",
        "CkptDeadLetterBacklog",
        "CkptLagIncreasing",
        "CkptCheckpointStalled",
        "CkptBatchHeld",
        "CkptExpiredUnreceipted",
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_has_what_prometheus_wants(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(DURATION, rule.get("for", "1m"))
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}
    for text in rule["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= {"pipeline"}
        assert text.count("{{") == text.count("}}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_metrics_and_labels_that_exist(rule: dict[str, Any]) -> None:
    expression: str = rule["expr"]
    known = series()
    for opened, closed in ("()", "{}", "[]"):
        assert expression.count(opened) == expression.count(closed)
    assert all(re.fullmatch(DURATION, found) for found in re.findall(r"\[([^]]*)\]", expression))

    bare = re.sub(r"\[[^]]*\]|\{[^}]*\}|offset \w+", "", expression)
    names = set(re.findall(r"[A-Za-z_]\w*", bare)) - FUNCTIONS - WORDS - TAGS
    assert names <= set(known), names - set(known)
    assert any(name.startswith("ckpt_") for name in names)
    for name, label, value in re.findall(r"(\w+)\{(\w+)=\"(\w+)\"\}", expression):
        assert value in {labels.get(label) for labels in known[name]}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_names_commands_that_exist(rule: dict[str, Any]) -> None:
    from airflow_provider_ckpt.cli.commands import get_ckpt_commands

    commands = {command.name: command for group in get_ckpt_commands() for command in getattr(group, "subcommands", ())}
    for named, below in re.findall(r"airflow ckpt (\w+)(?: (\w+))?", rule["annotations"]["description"]):
        assert named in commands
        inner = getattr(commands[named], "subcommands", None)
        assert inner is None or below in {command.name for command in inner}
