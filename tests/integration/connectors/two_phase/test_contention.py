"""Other writers that are faster than the sinks of table formats cost time, and no batch its attempt."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.wave import Outcome
from tests.integration.connectors.delta import delta_support as delta
from tests.integration.connectors.delta.delta_support import expected
from tests.integration.connectors.iceberg import iceberg_support as iceberg
from tests.services.contender import contender, to_delta, to_iceberg
from tests.services.iceberg import IcebergService

BATCHES = 20
COMMITS_A_SECOND = 15
RACES = 25
FEW = 5
"""Batches, and commits a second, at an Iceberg table, where a commit takes longer."""


def is_delivered(outcome: Outcome) -> bool:
    return outcome.outcome is AttemptOutcome.DELIVERED and not outcome.found


def newest(lake: IcebergService) -> int:
    """The sequence number of the newest snapshot."""
    table = lake.table(iceberg.TABLE)
    assert table is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.sequence_number or 0


class TestDelta:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Path:
        return tmp_path / "flights"

    def test_every_batch_is_delivered_beside_a_busy_writer(self, table: Path) -> None:
        run = delta.Run(table).fence()
        run.send(0)
        with contender("delta", table, COMMITS_A_SECOND):
            before = DeltaTable(table).version()
            outcomes = [run.send(seq)[0] for seq in range(1, BATCHES)]
            delta.Run(table, epoch=2).fence()
            commits = DeltaTable(table).version() - before

        assert all(map(is_delivered, outcomes))
        assert delta.ids(table) == expected(*range(BATCHES))
        assert commits > BATCHES  # the writer was at work all the time

    def test_any_number_of_lost_races_is_no_failure(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = delta.Run(table).fence()
        run.send(0)
        foreign, real = to_delta(str(table)), delta_table.commit
        lost: list[None] = []

        def race(*arguments: object) -> None:
            if len(lost) < RACES:
                lost.append(None)
                foreign()
            real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(delta_table, "commit", race)
        (outcome,) = run.send(1)
        assert is_delivered(outcome)
        lost.clear()
        delta.Run(table, epoch=2).fence()

        assert len(lost) == RACES
        assert delta.ids(table) == expected(0, 1)


class TestIceberg:
    @pytest.fixture
    def lake(self, tmp_path: Path) -> IcebergService:
        return IcebergService(tmp_path)

    def test_every_batch_is_delivered_beside_a_busy_writer(self, lake: IcebergService) -> None:
        run = iceberg.Run(lake).fence()
        run.send(0)
        with contender("iceberg", lake.folder, iceberg.TABLE, FEW):
            before = newest(lake)
            outcomes = [run.send(seq)[0] for seq in range(1, FEW)]
            iceberg.Run(lake, epoch=2).fence()
            commits = newest(lake) - before

        assert all(map(is_delivered, outcomes))
        assert iceberg.ids(lake) == expected(*range(FEW))
        assert commits > FEW

    def test_any_number_of_lost_races_is_no_failure(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = iceberg.Run(lake).fence()
        run.send(0)
        foreign, real = to_iceberg(str(lake.folder), iceberg.TABLE), SqlCatalog.commit_table
        lost: list[None] = []

        def race(*arguments: object) -> object:
            if len(lost) < RACES:
                lost.append(None)
                with monkeypatch.context() as patch:
                    patch.setattr(SqlCatalog, "commit_table", real)
                    foreign()
            return real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(SqlCatalog, "commit_table", race)
        (outcome,) = run.send(1)
        assert is_delivered(outcome)
        lost.clear()
        iceberg.Run(lake, epoch=2).fence()

        assert len(lost) == RACES
        assert iceberg.ids(lake) == expected(0, 1)
