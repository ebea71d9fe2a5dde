"""Formatting of cells in tables of the command line."""

from __future__ import annotations

import io

import pytest

from airflow_provider_ckpt.cli.output import format_cell, write_document, write_json, write_table, write_yaml
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.core.routes import Route


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (1234567, "1,234,567"),
        (START, "start"),
        ({"orders": [START, 1000]}, "orders start, 1,000"),
        (2.345, "2.3"),
        (True, "yes"),
        (None, "-"),
        ([], "-"),
        (["dead_letters", "done"], "dead_letters, done"),
        ({"held": 2, "planned": 1000}, "held 2, planned 1,000"),
        ({}, "-"),
        ("orders", "orders"),
        ("\x1b]0;owned\x07 a\nb", " ]0;owned  a b"),
        ({"\x1b[2J": ["\x9b2J"]}, " [2J  2J"),
    ],
)
def test_a_value_is_shown_as_a_person_writes_it(value: object, cell: str) -> None:
    assert format_cell(value) == cell


def test_json_keeps_numbers() -> None:
    out = io.StringIO()
    write_json({"batches": 12, "seconds": 1.5}, out)

    assert '"batches": 12,' in out.getvalue()


def test_a_table_shows_every_row() -> None:
    out = io.StringIO()
    write_table([("read", 336776), ("dead [lettered] :warning:", 137)], out, ("records", "count"))

    assert "336,776" in out.getvalue()
    assert "dead [lettered] :warning:" in out.getvalue()
    assert "count" in out.getvalue()


def test_yaml_keeps_numbers_and_order() -> None:
    out = io.StringIO()
    write_yaml({"seconds": 1.5, "batches": 12, "route": [Route.DONE], "reason": "naïve: yes"}, out)

    assert out.getvalue() == "seconds: 1.5\nbatches: 12\nroute:\n- done\nreason: 'naïve: yes'\n"


def test_a_document_is_a_table_of_what_is_single_and_one_for_each_list_of_records() -> None:
    out = io.StringIO()
    records = [{"batch": f"t#{number}", "error": None} for number in range(1002)]
    write_document({"planned_to": 12, "gaps": [], "batches": records}, out)

    assert "planned to   12" in out.getvalue()
    assert "t#99 " in out.getvalue()
    assert "t#100 " not in out.getvalue()
    assert "batches: 902 more; add -o json to see all" in out.getvalue()
