"""Write the result of a command as JSON, YAML or tables; numbers are formatted in tables only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from airflow_provider_ckpt.core.ranges import position_text

_MAX_ROWS = 100
"""Maximum number of rows in a table; JSON and YAML contain all rows."""


def write_json(result: Any, out: TextIO) -> None:
    """Write a command's result as one JSON document, with a newline at its end."""
    json.dump(result, out, indent=2)
    out.write("\n")


def write_yaml(result: Any, out: TextIO) -> None:
    """Write a command's result as one YAML document, with its keys in the order of the result."""
    import yaml

    # Converted by JSON, so that str enums are written as plain text.
    yaml.safe_dump(json.loads(json.dumps(result)), out, sort_keys=False, allow_unicode=True, width=120)


def write_document(result: Mapping[str, Any], out: TextIO) -> None:
    """Write a JSON-ready dict as tables: one with all single values, and one more for each list of records.

    The keys become labels and column headers.
    """
    lists = {name: value for name, value in result.items() if _is_list_of_records(value)}
    write_table([(_words(name), value) for name, value in result.items() if name not in lists], out)
    for name, records in lists.items():
        headers = list(dict.fromkeys(key for record in records for key in record))
        rows = [[record.get(key) for key in headers] for record in records[:_MAX_ROWS]]
        write_table(rows, out, [_words(header) for header in headers])
        if len(records) > _MAX_ROWS:
            out.write(f"{_words(name)}: {len(records) - _MAX_ROWS:,} more; add -o json to see all\n")


def _is_list_of_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def write_table(rows: Iterable[Sequence[Any]], out: TextIO, headers: Sequence[str] = ()) -> None:
    """Write a table whose columns are as wide as their content.

    :param rows: the rows; :func:`format_cell` formats the values
    :param out: the stream
    :param headers: headers of the columns; empty for a table without headers
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(*headers, box=SIMPLE, show_header=bool(headers), pad_edge=False)
    for row in rows:
        table.add_row(*(format_cell(value) for value in row))
    console = Console(file=out, width=None if out.isatty() else 160, highlight=False, markup=False, emoji=False)
    with console.capture() as lines:
        console.print(table)
    out.write(lines.get())  # since rich's console would handle a closed pipe itself


def format_cell(value: Any) -> str:
    """Return a value as the text of a table cell.

    Numbers get thousands separators, the items of a list are separated by commas, None becomes a hyphen, and
    unprintable characters become spaces. The number :data:`~airflow_provider_ckpt.core.ranges.START` (-2^63) is shown
    as ``start``: it can only be a position, since no count is so low.
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return position_text(value, ",")
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(str(key))} {format_cell(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(format_cell(item) for item in value) or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """Return a text with unprintable characters replaced by spaces, so that data cannot control the terminal."""
    return "".join(char if char.isprintable() else " " for char in text)
