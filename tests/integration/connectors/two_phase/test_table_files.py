"""A missing or truncated data file that a table needs is named in the error."""

from __future__ import annotations

from tests.integration.connectors.two_phase.harness import Run, TableHarness


def test_no_file_is_missed_without_a_table_or_in_a_whole_one(table: TableHarness) -> None:
    run = Run(table)
    assert list(run.sink.damaged_files()) == []
    run.fence()
    assert list(run.sink.damaged_files()) == []
    run.send(0, 1)

    assert list(run.sink.damaged_files()) == []


def test_a_file_that_is_gone_or_cut_off_is_named(table: TableHarness) -> None:
    run = Run(table).fence()
    staged = run.stage(0, 1, 2)
    run.commit(*staged)
    gone, short, _ = (table.place / file["path"] for outcome in staged for file in (outcome.staged or {})["files"])
    gone.unlink()
    size = short.stat().st_size
    short.write_bytes(b"PAR1")

    assert set(run.sink.damaged_files()) == {
        f"the file {short} has 4 bytes instead of the {size} that the table's metadata says",
        f"the file {gone} is missing",
    }
