"""How results are written: JSON and YAML that keep numbers, and tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

_SHOWN = 100
"""Rows of a table that a person gets to see; a document holds all of them."""


def write_json(result: Any, out: TextIO) -> None:
    """One JSON document and a newline."""
    json.dump(result, out, indent=2)
    out.write("\n")


def write_yaml(result: Any, out: TextIO) -> None:
    """One YAML document, keys in their own order."""
    import yaml

    # By way of JSON, so that enums and the like are written as the plain texts that they are.
    yaml.safe_dump(json.loads(json.dumps(result)), out, sort_keys=False, allow_unicode=True, width=120)


def write_document(result: Mapping[str, Any], out: TextIO) -> None:
    """A document whose keys speak for themselves: what is single in one table, and a table for each list of records."""
    lists = {name: value for name, value in result.items() if _records(value)}
    write_table([(_words(name), value) for name, value in result.items() if name not in lists], out)
    for name, records in lists.items():
        headers = list(dict.fromkeys(key for record in records for key in record))
        rows = [[record.get(key) for key in headers] for record in records[:_SHOWN]]
        write_table(rows, out, [_words(header) for header in headers])
        if len(records) > _SHOWN:
            out.write(f"{_words(name)}: {len(records) - _SHOWN:,} more; -o json shows all\n")


def _records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def write_table(rows: Iterable[Sequence[Any]], out: TextIO, headers: Sequence[str] = ()) -> None:
    """Rows under headers, in columns as wide as their content.

    :param headers: none leaves the line of headers out
    """
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(*headers, box=SIMPLE, show_header=bool(headers), pad_edge=False)
    for row in rows:
        table.add_row(*(show(value) for value in row))
    console = Console(file=out, width=None if out.isatty() else 160, highlight=False, markup=False)
    with console.capture() as lines:
        console.print(table)
    out.write(lines.get())  # a pipe that its reader closed is command.py's to handle, not the console's


def show(value: Any) -> str:
    """A value as a cell: thousands apart, lists with commas, and nothing that is not printable."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(str(key))} {show(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(show(item) for item in value) or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """A text without what a terminal would take for a command; data may hold anything."""
    return "".join(char if char.isprintable() else " " for char in text)
