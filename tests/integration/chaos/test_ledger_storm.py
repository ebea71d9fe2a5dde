"""A short ledger storm on both databases, and on ledgers with defects; see ``tests/chaos/ledger_storm.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.ledger_storm import on_postgres, on_sqlite
from tests.chaos.storm.scene import Defect
from tests.chaos.storm.storm import Scale, shortcomings
from tests.services.postgres import PostgresServer

SEED = 4


def told(summary: dict[str, Any], scale: Scale) -> list[str]:
    """Return the reasons for which a storm did not pass, as text."""
    return [*shortcomings(summary, scale), *summary["faults"]]


def test_a_ledger_on_postgresql_keeps_what_it_acknowledged_in_a_storm(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    scale = Scale(processes=6, commands=800, seed=SEED)

    summary = on_postgres(postgres_server, tmp_path, scale)

    assert told(summary, scale) == []
    assert summary["kills"] > 0
    assert summary["stale_refused"] > 0


def test_a_ledger_on_sqlite_keeps_what_it_acknowledged_in_a_storm(tmp_path: Path) -> None:
    scale = Scale(processes=3, commands=300, seed=SEED)

    summary = on_sqlite(tmp_path, scale)

    assert told(summary, scale) == []
    assert summary["kills"] > 0
    assert summary["stale_refused"] > 0


@pytest.mark.parametrize(
    ("defect", "told_as"),
    [
        pytest.param(Defect.EPOCH, "stale_accepted", id="no epoch is ever too old"),
        pytest.param(Defect.FORGETS, "lost", id="a settlement forgets receipts"),
        pytest.param(Defect.COUNTS, "lost", id="a batch loses its counts below the checkpoint"),
        pytest.param(Defect.CHECKPOINT, "violations", id="somebody moves a checkpoint by hand"),
    ],
)
def test_the_oracle_reports_a_ledger_that_is_broken(tmp_path: Path, defect: Defect, told_as: str) -> None:
    for commands in (120, 480, 1920):  # what the processes meet depends on how the machine schedules them
        folder = tmp_path / str(commands)
        folder.mkdir()
        summary = on_sqlite(folder, Scale(processes=2, commands=commands, seed=SEED), defect=defect)
        if summary[told_as]:
            break

    assert summary[told_as] > 0
    assert summary["faults"]
