"""Check that the header of a CSV file names the declared columns in order, since CSV is decoded by position."""

from __future__ import annotations

import csv
import re
from shlex import quote

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.files.connector import FilesSourceSection
from airflow_provider_ckpt.connectors.files.record_ends import BOM
from airflow_provider_ckpt.core.errors import SourceError

_ANNOTATION = re.compile(r"(?<!\s)\s++(?:not\s++null|comment\s.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))")


def has_header(pipeline: Pipeline) -> bool:
    """Return whether the first record of each source file is a header that names the columns."""
    return pipeline.transform.decode == "csv" and FilesSourceSection.of(pipeline).header


def delimiter(pipeline: Pipeline) -> bytes | None:
    """Return the field separator of CSV records; None if the files are not CSV."""
    return pipeline.transform.delimiter.encode() if pipeline.transform.decode == "csv" else None


def column_names(schema: str) -> list[str]:
    """Return the top-level column names of a Spark DDL schema, in order."""
    return [name for name, _ in _split_columns(schema)]


def column_types(schema: str) -> dict[str, str]:
    """Return the types of a Spark DDL schema's top-level columns by name, in order."""
    return dict(_split_columns(schema))


def _split_columns(schema: str) -> list[tuple[str, str]]:
    parts, depth, current = [], 0, ""
    for lexeme in re.findall(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|.", schema, re.DOTALL):
        depth += (lexeme in "<(") - (lexeme in ">)")
        if lexeme == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += lexeme
    found = ((_NAME.match(part), part) for part in [*parts, current])
    return [
        (name[1].replace("``", "`") if name[1] else name[2], _ANNOTATION.sub("", part[name.end() :]).lstrip(" :"))
        for name, part in found
        if name
    ]


def check_header(pipeline: Pipeline, path: str, record: bytes) -> None:
    """Raise an error if a file's header does not name the declared columns in order; letter case is ignored.

    The error does not quote the record: if the file has no header, that record is data.

    :param pipeline: ``transform.schema`` declares the columns
    :param path: the file, for the message
    :param record: the file's first record
    :raises SourceError: naming the file and the difference
    """
    if record == BOM:
        return  # the file is empty except for a byte order mark
    text = record.removeprefix(BOM).decode("utf-8", errors="replace")
    try:
        found = [name.strip().lower() for name in next(csv.reader([text], delimiter=pipeline.transform.delimiter), [])]
    except csv.Error as error:
        raise SourceError(
            f"{path}: its first line is not a CSV record.",
            hint="Each line must end with a newline, or a carriage return and a newline; convert the file.",
        ) from error
    names = column_names(pipeline.transform.schema_ or "")
    declared = [name.lower() for name in names]
    if found == declared:
        return
    if len(found) != len(declared):
        fields = "1 field" if len(found) == 1 else f"{len(found)} fields"
        problem = f"has {fields}, but transform.schema declares {len(declared)} columns"
    elif sorted(found) == sorted(declared):
        problem = "names the columns of transform.schema in another order"
    else:
        at = next(index for index, pair in enumerate(zip(found, declared, strict=True)) if pair[0] != pair[1])
        problem = f"has another name in field {at + 1} than {names[at]}, which transform.schema declares there"
    raise SourceError(
        f"{path}: its header {problem}.",
        hint=f"CSV is decoded by position: declare the columns in the order of `head -n 1 {quote(path)}`, or set "
        "source.header: false if that line is data.",
    )
