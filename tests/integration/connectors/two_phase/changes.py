"""Change a table as other writers do, and remove its newest receipts in ways that keep all rows."""

from __future__ import annotations

import shutil

from tests.integration.connectors.two_phase.harness import TableHarness


def append(table: TableHarness) -> None:
    table.append(99)


def delete(table: TableHarness) -> None:
    table.delete("id > 3")


def delete_all(table: TableHarness) -> None:
    table.delete()


def add_column(table: TableHarness) -> None:
    table.add_column("note")


def compact(table: TableHarness) -> None:
    table.compact()


def clean_up_history(table: TableHarness) -> None:
    table.clean_up_history()


CHANGES = (append, delete, delete_all, add_column, compact, clean_up_history)


def lose_newest(table: TableHarness) -> None:
    table.nodes[-1].unlink()


def cut_off_newest(table: TableHarness) -> None:
    table.nodes[-1].write_bytes(b"")


def replace_newest(table: TableHarness) -> None:
    table.nodes[-1].write_bytes(b"[]")


def lose_all(table: TableHarness) -> None:
    shutil.rmtree(table.place / "_ckpt")


LOSSES = (lose_newest, cut_off_newest, replace_newest, lose_all)
