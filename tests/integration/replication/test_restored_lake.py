"""Runs into restored, rolled back or damaged Delta and Iceberg tables report it; then the tables are repaired."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_provider_ckpt.core.errors import IoError, SinkChangedError
from airflow_provider_ckpt.replication.actions import accept_sink
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext, change_sink
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.services.delta import read_delta
from tests.services.iceberg import IcebergService
from tests.services.replication import Replication
from tests.services.tables import add_rows

TABLE = "air.orders"


@dataclass
class Lake:
    """A pipeline from PostgreSQL into a table of files.

    :param ids: reads the target
    :param set_back: brings its content back to what it was before the newest commit
    :param place: its directory
    """

    orders: Replication
    ids: Callable[[], list[int]]
    set_back: Callable[[], None]
    place: Path


@pytest.fixture(params=["delta", "iceberg"])
def lake(orders: Replication, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """1,000 orders, in batches of 100; nothing is delivered yet."""
    path = tmp_path / "table"
    service = IcebergService(tmp_path / "lake", orders.dsn)
    if request.param == "delta":
        document = {key: value for key, value in orders.document.items() if key != "sink"}
        document["sink"] = {"type": "delta", "path": str(path)}

        def restore() -> None:
            DeltaTable(path).restore(DeltaTable(path).version() - 1)

        return Lake(
            replace(orders, document=document), lambda: sorted(read_delta(path)["id"].to_pylist()), restore, path
        )

    def roll_back() -> None:
        table = service.table(TABLE)
        assert table is not None
        newest = table.current_snapshot()
        assert newest is not None
        assert newest.parent_snapshot_id is not None
        table.manage_snapshots().rollback_to_snapshot(newest.parent_snapshot_id).commit()

    document = {**orders.document, "sink": {"type": "iceberg", "connection": "lake", "table": TABLE}}
    replication = replace(orders, document=document, others={"lake": service.connection})
    place = tmp_path / "lake" / "warehouse" / "air" / "orders"
    return Lake(replication, lambda: sorted(service.rows(TABLE)["id"].to_pylist()), roll_back, place)


def accept(orders: Replication, *, resend: bool) -> None:
    """Accept the sink as a person would."""
    setup = orders.setup()
    asked = ActionContext(orders.ledger, "orders", lambda: setup, "test:person", "restored")
    assert change_sink(asked, accept_sink.make_acceptance(setup, resend=resend))["applied"]


def test_a_restored_table_is_refused_and_gets_again_exactly_what_it_lost(lake: Lake) -> None:
    lake.orders.run()
    add_rows(lake.orders.dsn, "orders", 1001, 1501)
    lake.orders.run()
    assert lake.ids() == list(range(1, 1501))
    lake.set_back()
    left = lake.ids()
    assert len(left) < 1500

    told = audit_sink(lake.orders.setup(), lambda _: None, shared=True)["differences"]
    assert [item["kind"] for item in told] == ["SinkChanged"]
    with pytest.raises(SinkChangedError, match=r"was restored or rolled back to its version"):
        lake.orders.run()
    assert lake.ids() == left
    accept(lake.orders, resend=True)
    lake.orders.run()

    assert lake.ids() == list(range(1, 1501))
    assert lake.orders.run().records.delivered == 0
    assert audit_sink(lake.orders.setup(), lambda _: None)["differences"] == []


def test_lost_bookkeeping_is_refused_and_the_ledger_goes_on_once_accepted(lake: Lake) -> None:
    lake.orders.run()
    shutil.rmtree(lake.place / "_ckpt")
    add_rows(lake.orders.dsn, "orders", 1001, 1101)

    with pytest.raises(SinkChangedError, match="missing or damaged"):
        lake.orders.run()
    accept(lake.orders, resend=False)

    assert lake.orders.run().records.delivered == 100
    assert lake.ids() == list(range(1, 1101))
    found = audit_sink(lake.orders.setup(), lambda _: None)
    assert (found["differences"], found["compared"]["target_rows"]) == ([], 1100)


def test_a_file_system_that_fails_is_not_taken_for_lost_receipts_and_nothing_is_sent_again(lake: Lake) -> None:
    lake.orders.run()
    add_rows(lake.orders.dsn, "orders", 1001, 1101)
    lake.orders.run()
    lake.set_back()
    oldest = min(lake.place.glob("_ckpt/*/orders/receipts/*.json"))
    oldest.unlink()
    oldest.mkdir()

    with pytest.raises(IoError, match="Is a directory"):
        accept(lake.orders, resend=True)
    assert lake.ids() == list(range(1, 1001))


def die(*_: object, **__: object) -> None:
    """Stands for a process that dies where the ledger would store something."""
    raise KeyboardInterrupt


def test_a_batch_that_was_not_settled_when_the_table_was_restored_is_sent_again(lake: Lake) -> None:
    lake.orders.run()
    add_rows(lake.orders.dsn, "orders", 1001, 1101)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.orders.ledger, "settle", die)
        with pytest.raises(KeyboardInterrupt):
            lake.orders.run()
    assert lake.ids() == list(range(1, 1101))
    lake.set_back()
    assert lake.ids() == list(range(1, 1001))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.orders.ledger, "act_under_lease", die)
        with pytest.raises(KeyboardInterrupt):
            accept(lake.orders, resend=True)
    with pytest.raises(SinkChangedError, match="a user began to accept it"):
        lake.orders.run()
    accept(lake.orders, resend=True)
    lake.orders.run()

    assert lake.ids() == list(range(1, 1101))
    assert lake.orders.run().records.delivered == 0
