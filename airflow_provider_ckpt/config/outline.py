"""What can be told of a pipeline's file without validating it: which DAG it makes, and when that would run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import yaml
from pydantic import ValidationError

from airflow_provider_ckpt.config.schedule import Dag

_DAG_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class Outline:
    """What a file says of its DAG, as far as it can be read.

    :param dag_id: None where the file asks for no DAG, or its name cannot be read
    :param schedule: a cron expression, a preset or an interval; not checked
    :param start_date: nothing is scheduled before it
    """

    dag_id: str | None = None
    schedule: str | timedelta | None = None
    start_date: datetime | None = None


def outline(path: Path) -> Outline:
    """Read a file that may be wrong; raises nothing.

    :param path: the file
    """
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
        name, section = data["name"], data["dag"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError, yaml.YAMLError):
        return Outline()
    try:
        dag = Dag.model_validate(section or {})
    except ValidationError:
        return Outline(_dag_id((isinstance(section, dict) and section.get("dag_id")) or name))
    return Outline(_dag_id(dag.dag_id or name), dag.schedule or dag.every, dag.start_date)


def _dag_id(given: object) -> str | None:
    return given if isinstance(given, str) and _DAG_ID.fullmatch(given) else None
