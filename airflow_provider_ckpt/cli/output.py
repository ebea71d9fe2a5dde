"""How results are written: JSON that keeps numbers, and tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO


def write_json(result: Any, out: TextIO) -> None:
    """One JSON document and a newline."""
    json.dump(result, out, indent=2)
    out.write("\n")


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
    Console(file=out, width=None if out.isatty() else 160, highlight=False, markup=False).print(table)


def show(value: Any) -> str:
    """A value as a cell: thousands apart, lists with commas."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {show(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(show(item) for item in value) or "-"
    return str(value)
