"""Tests of the exact text of a notice, and of the escaping of data in it."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.cli.commands import get_ckpt_commands
from airflow_provider_ckpt.notifications.notice import Notice, Reason, one_line


def everything() -> Notice:
    """A run in which everything went wrong."""
    return Notice(
        "orders",
        "task replicate of shop, run manual__1",
        dead_lettered=1200,
        errors={"Sink": 1000, "Serialization": 200},
        where="table ckpt_sink_dead_letter of connection warehouse",
        held=7,
        held_batches=tuple({"batch": f"t#{number}", "error": "[Sink] too long"} for number in range(7)),
        expired=({"partition": "t-0", "range": [10, 20]},),
        failure="[Sink] pipeline orders: no route to host",
    )


def test_it_says_what_where_and_what_to_do() -> None:
    assert everything().text.splitlines() == [
        (
            "Pipeline orders: failed, 1 ranges expired without a receipt, 7 batches held, 1,200 records dead-lettered "
            "(task replicate of shop, run manual__1)"
        ),
        "It failed: [Sink] pipeline orders: no route to host",
        "What was delivered is settled; the next run does the rest. See: airflow ckpt status orders",
        (
            "Dead letters by error: 200 Serialization, 1,000 Sink. They are in table ckpt_sink_dead_letter of "
            "connection warehouse."
        ),
        (
            "Show them: airflow ckpt dlq show orders; once the cause is fixed, send them again: "
            "airflow ckpt dlq replay orders"
        ),
        *(f"Held: t#{number}: [Sink] too long" for number in range(5)),
        (
            "The checkpoint waits for them. Try them again: airflow ckpt release orders --all; or skip them: "
            "airflow ckpt skip orders BATCH --reason ..."
        ),
        "Expired: t-0 from 10 to 20 (exclusive)",
        "Nothing accounts for these positions. See: airflow ckpt audit orders",
    ]


def test_a_run_that_needs_nobody_gives_no_reason() -> None:
    assert Notice("orders", "task").reasons == frozenset()
    assert everything().reasons == frozenset(Reason)


def test_html_is_escaped() -> None:
    notice = Notice("orders", "task", held=1, held_batches=({"batch": "t#0", "error": "<script>alert(1)</script>"},))

    assert "<script>" not in notice.html
    assert "&lt;script&gt;" in notice.html


def test_what_comes_from_data_is_one_short_line() -> None:
    assert one_line("a\nb\r\x1b[31mc\u2028d\x00") == "a b [31mc d"
    assert len(one_line("x" * 5000)) == 300


@pytest.mark.parametrize("words", ["status", "release", "skip", "audit", "dlq"])
def test_the_commands_that_it_names_exist(words: str) -> None:
    assert f"airflow ckpt {words}" in everything().text
    assert words in {command.name for group in get_ckpt_commands() for command in getattr(group, "subcommands", ())}
