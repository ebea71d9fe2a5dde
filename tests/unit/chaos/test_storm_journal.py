"""A journal shows which commands were tried, which were acknowledged, and which got no answer."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_ckpt.core.errors import LeaseBusyError, LedgerStateError, LedgerUnavailableError, StaleEpochError
from tests.chaos.storm.journal import Is, Journal, read, read_all


def refuse(error: Exception) -> int:
    """A command that ends with an error."""
    raise error


def test_a_command_is_read_back_as_it_was_given_and_answered(tmp_path: Path) -> None:
    with Journal(tmp_path / "0-1.journal", "0-1") as journal:
        answer = journal.call(
            "plan", lambda: 7, lambda found: {"keys": [found]}, pipeline="orders", epoch=3, ranges=[1]
        )

    [entry] = read(tmp_path / "0-1.journal")
    assert answer.value == 7
    assert (entry.tag, entry.do, entry.pipeline, entry.epoch, entry.end) == ("0-1:1", "plan", "orders", 3, Is.OK)
    assert (entry.facts, entry.result) == ({"ranges": [1]}, {"keys": [7]})
    assert entry.told is not None
    assert entry.tried <= entry.told


def test_every_refusal_has_its_own_end_and_only_decisions_count(tmp_path: Path) -> None:
    counted: list[None] = []
    errors = [
        StaleEpochError("a"),
        LeaseBusyError("b"),
        LedgerStateError("c"),
        LedgerUnavailableError("d"),
        KeyError("e"),
    ]
    with Journal(tmp_path / "0-1.journal", "0-1", lambda: counted.append(None)) as journal:
        for error in errors:
            journal.call("renew", lambda error=error: refuse(error), lambda _: {}, pipeline="orders")  # type: ignore[misc]

    ends = [entry.end for entry in read(tmp_path / "0-1.journal")]
    assert ends == [Is.STALE, Is.BUSY, Is.REFUSED, Is.UNAVAILABLE, Is.BROKEN]
    assert len(counted) == 2


def test_a_process_killed_inside_a_command_leaves_it_unanswered(tmp_path: Path) -> None:
    path = tmp_path / "0-1.journal"
    with Journal(path, "0-1") as journal:
        journal.call("renew", lambda: 1, lambda _: {}, pipeline="orders")
        journal.call("plan", lambda: 1, lambda _: {}, pipeline="orders")
    path.write_bytes(path.read_bytes()[:-5])

    entries = read_all(tmp_path)

    assert [entry.end for entry in entries] == [Is.OK, Is.UNANSWERED]
    assert entries[1].unknown
