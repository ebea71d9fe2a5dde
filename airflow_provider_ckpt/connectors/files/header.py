"""The header line of a CSV file against the declared columns: records are decoded by position, so order counts."""

from __future__ import annotations

import csv
import re

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.files.records import BOM
from airflow_provider_ckpt.core.errors import SourceError

_ANNOTATION = re.compile(r"\s+(?:not\s+null|comment\s.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))")

_MOST = 500
"""Characters of a header that an error shows."""


def has_header(pipeline: Pipeline) -> bool:
    """Whether each file's first record names its columns."""
    return pipeline.transform.decode == "csv" and pipeline.source.header


def delimiter(pipeline: Pipeline) -> bytes | None:
    """What separates the fields of a CSV record; None of other records."""
    return pipeline.transform.delimiter.encode() if pipeline.transform.decode == "csv" else None


def column_names(schema: str) -> list[str]:
    """The top-level column names of a Spark DDL schema, in order."""
    return [name for name, _ in _columns(schema)]


def column_types(schema: str) -> dict[str, str]:
    """The types of a Spark DDL schema's top-level columns, by name, in order."""
    return dict(_columns(schema))


def _columns(schema: str) -> list[tuple[str, str]]:
    parts, depth, current = [], 0, ""
    for piece in re.findall(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|.", schema, re.DOTALL):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += piece
    found = ((_NAME.match(part), part) for part in [*parts, current])
    return [
        (name[1].replace("``", "`") if name[1] else name[2], _ANNOTATION.sub("", part[name.end() :]).lstrip(" :"))
        for name, part in found
        if name
    ]


def check_header(pipeline: Pipeline, path: str, record: bytes) -> None:
    """Fail if a file's header does not name the declared columns in the declared order (letter case aside).

    :param record: the file's first record, as bytes
    :raises SourceError: naming both lists
    """
    if record == BOM:
        return  # an empty file that an editor has marked
    text = record.removeprefix(BOM).decode("utf-8", errors="replace")
    try:
        found = [name.strip() for name in next(csv.reader([text], delimiter=pipeline.transform.delimiter), [])]
    except csv.Error as error:
        raise SourceError(
            f"{path}: its header is no CSV record: {_told(text)}",
            hint="Each line ends with a newline, before which a carriage return may stand; convert the file.",
        ) from error
    declared = column_names(pipeline.transform.schema_ or "")
    if [name.lower() for name in found] == [name.lower() for name in declared]:
        return
    same = sorted(name.lower() for name in found) == sorted(name.lower() for name in declared)
    raise SourceError(
        f"{path}: its header names the columns {_told(', '.join(found))}, "
        f"but transform.schema declares {', '.join(declared)}" + (" in another order." if same else "."),
        hint="CSV is decoded by position: declare the columns in the file's order, or set source.header: false "
        "if the first line is data.",
    )


def _told(text: str) -> str:
    """As much of what a file holds as an error should say."""
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
