"""Read name, DAG id and schedule from a pipeline's file without validating the rest of it.

With this outline, a DAG factory shows a DAG even for a file with errors.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from airflow_provider_ckpt.config.document import Document
from airflow_provider_ckpt.config.load import read_text
from airflow_provider_ckpt.config.schedule import DagSection
from airflow_provider_ckpt.core.errors import ConfigError

_DATABASE_KEY = re.compile(r"""^(["']?)database\1\s*:""", re.MULTILINE)
_FLOW = re.compile(r"^\s*\{", re.MULTILINE)
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class Outline:
    """Name, DAG and schedule of a pipeline, as far as they can be read from a file that may be invalid.

    :param name: the pipeline's name; None if it cannot be read
    :param dag_id: the DAG's id; None if the file declares no DAG, or the id cannot be read
    :param schedule: a cron expression, a preset or an interval, not checked; None if there is none or it cannot be read
    :param start_date: the DAG's start date; None if there is none or it cannot be read
    """

    name: str | None = None
    dag_id: str | None = None
    schedule: str | timedelta | None = None
    start_date: datetime | None = None


def read_outline(path: Path) -> Outline:
    """Return the outline of a pipeline's file, even if the file is invalid: the pipeline's name, DAG and schedule.

    If the file cannot be read, the outline is empty. No error is raised, because one invalid file must not hide the
    DAGs of the other files.

    :param path: the YAML file
    """
    try:
        data = Document(read_text(path), os.environ).data
        return _outline(data) if isinstance(data, dict) else Outline()
    except Exception:  # noqa: BLE001  # an error in one file must not prevent the DAGs of the other files
        return Outline()


def may_declare(path: Path, dag_id: str) -> bool:
    """Return whether a pipeline's file may declare the DAG with a given id: whether its text contains the id.

    The YAML is not parsed. The result is also True if the text has an escape sequence or an environment variable, from
    which the id may result, and False if the file cannot be read.

    :param path: the YAML file
    :param dag_id: id of the DAG
    """
    try:
        text = read_text(path)
    except ConfigError:
        return False
    return dag_id in text or "\\" in text or "${" in text


def declares_many_tables(path: Path) -> bool:
    """Return whether a file declares many tables of a database instead of one pipeline: it has the key ``database``.

    The text is searched. YAML is parsed only if the file may have the key in the form ``{database: …}``. The result is
    False if the file cannot be read or parsed; loading it reports the error.

    :param path: the YAML file
    """
    try:
        text = read_text(path)
        if _DATABASE_KEY.search(text):
            return True
        if "database" not in text or not _FLOW.search(text):
            return False
        data = Document(text, os.environ).data
    except Exception:  # noqa: BLE001  # loading the file reports the error
        return False
    return isinstance(data, dict) and "database" in data


def _outline(data: dict[str, Any]) -> Outline:
    name, section = _valid_id(data.get("name")), data.get("dag", _NO_SECTION)
    if section is _NO_SECTION:
        return Outline(name)
    try:
        dag = DagSection.model_validate(section or {})
    except ValidationError:
        return Outline(name, _valid_id(isinstance(section, dict) and section.get("dag_id")) or name)
    return Outline(name, dag.dag_id or name, dag.schedule or dag.every, dag.start_date)


_NO_SECTION = object()


def _valid_id(given: object) -> str | None:
    return given if isinstance(given, str) and _ID.fullmatch(given) else None
