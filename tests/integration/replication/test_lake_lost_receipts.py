"""Runs into Delta and Iceberg tables with lost or altered receipts are refused, until a user accepts the loss."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_provider_ckpt.core.action import Action
from airflow_provider_ckpt.core.errors import ConfigError, ReceiptsUnreadableError, SinkChangedError
from airflow_provider_ckpt.replication.actions import accept_sink
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext, change_sink
from airflow_provider_ckpt.replication.observe.preview import preview
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
    :param empty: deletes all of its rows
    :param place: its directory
    """

    orders: Replication
    ids: Callable[[], list[int]]
    empty: Callable[[], object]
    place: Path

    @property
    def nodes(self) -> list[Path]:
        """The files of the chain of receipts, the oldest first."""
        return sorted(self.place.glob("_ckpt/*/orders/receipts/*.json"))

    def accept(self, *, resend: bool) -> Action:
        """Accept the sink as a person would."""
        setup = self.orders.setup()
        asked = ActionContext(self.orders.ledger, "orders", lambda: setup, "test:person", "cleaned up")
        action = accept_sink.make_acceptance(setup, resend=resend)
        assert change_sink(asked, action)["applied"]
        return action


@pytest.fixture(params=["delta", "iceberg"])
def lake(orders: Replication, tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """1,000 orders, in waves of a few batches; nothing is delivered yet."""
    path = tmp_path / "table"
    service = IcebergService(tmp_path / "lake", orders.dsn)
    waves = {"consumer": {"max_in_flight": 200}, "commit_strategy": {"commit_interval": 100}}
    if request.param == "delta":
        document = {key: value for key, value in orders.document.items() if key != "sink"}
        document["sink"] = {"type": "delta", "path": str(path)}
        return Lake(
            replace(orders, document=document).changed(**waves),
            lambda: sorted(read_delta(path)["id"].to_pylist()),
            lambda: DeltaTable(path).delete(),
            path,
        )

    def empty() -> None:
        table = service.table(TABLE)
        assert table is not None
        table.delete("id >= 0")

    document = {**orders.document, "sink": {"type": "iceberg", "connection": "lake", "table": TABLE}}
    replication = replace(orders, document=document, others={"lake": service.connection}).changed(**waves)
    place = tmp_path / "lake" / "warehouse" / "air" / "orders"
    return Lake(replication, lambda: sorted(service.rows(TABLE)["id"].to_pylist()), empty, place)


def an_older_node(lake: Lake) -> None:
    lake.nodes[-3].unlink()


def the_newest_node(lake: Lake) -> None:
    lake.nodes[-1].unlink()


def all_nodes(lake: Lake) -> None:
    shutil.rmtree(lake.place / "_ckpt")


def an_altered_node(lake: Lake) -> None:
    lake.nodes[-2].write_bytes(b"\x00 garbage")


LOSSES = [an_older_node, the_newest_node, all_nodes, an_altered_node]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_table_that_lost_receipts_is_refused_and_goes_on_once_a_person_keeps_it(
    lake: Lake, lose: Callable[[Lake], None]
) -> None:
    lake.orders.run()
    assert len(lake.nodes) > 3
    lose(lake)
    add_rows(lake.orders.dsn, "orders", 1001, 1101)

    for attempt in (lake.orders.run, lambda: preview(lake.orders.setup())):
        with pytest.raises(SinkChangedError) as raised:
            attempt()
        told = str(raised.value)
        assert "pipeline orders" in told
        assert f"{lake.place}/_ckpt" in told
        assert ".json. Without that file" in told
        assert "receipts of batches that were delivered are missing" in told
        assert "airflow ckpt accept-sink orders --keep" in told
    assert lake.ids() == list(range(1, 1001))
    with pytest.raises(ConfigError, match=r"sending them again could add their rows twice.* Use --keep"):
        lake.accept(resend=True)
    lake.accept(resend=False)

    assert lake.orders.run().records.delivered == 100
    assert lake.orders.run().records.delivered == 0
    assert lake.ids() == list(range(1, 1101))


@pytest.mark.parametrize("lose", LOSSES)
def test_an_empty_table_that_lost_receipts_gets_everything_again(lake: Lake, lose: Callable[[Lake], None]) -> None:
    lake.orders.run()
    lake.empty()
    lose(lake)

    lake.accept(resend=True)
    lake.orders.run()

    assert lake.ids() == list(range(1, 1001))
    assert lake.orders.run().records.delivered == 0


def die(*_: object, **__: object) -> None:
    """Stands for a process that dies where the ledger would store something."""
    raise KeyboardInterrupt


def leave_unsettled(lake: Lake) -> None:
    """Commit a wave, and die before the ledger settles it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.orders.ledger, "settle", die)
        with pytest.raises(KeyboardInterrupt):
            lake.orders.run()


def test_a_wave_whose_receipts_were_lost_before_they_were_settled_is_held_and_not_sent_twice(lake: Lake) -> None:
    leave_unsettled(lake)
    delivered = lake.ids()
    assert delivered
    lake.nodes[-1].unlink()

    with pytest.raises(SinkChangedError, match="missing or damaged"):
        lake.orders.run()
    action = lake.accept(resend=False)

    assert len(action.batches) == len(delivered) // 100
    assert lake.orders.run().records.delivered == 0
    assert {batch["state"] for batch in lake.orders.ledger.inspect("orders")["batches"]} == {"held"}
    assert lake.ids() == delivered


def test_a_wave_that_was_not_settled_keeps_its_receipts_when_older_ones_are_lost(lake: Lake) -> None:
    lake.orders.run()
    add_rows(lake.orders.dsn, "orders", 1001, 1101)
    leave_unsettled(lake)
    assert lake.ids() == list(range(1, 1101))
    lake.nodes[-2].unlink()

    with pytest.raises(SinkChangedError, match="missing or damaged"):
        lake.orders.run()
    assert lake.accept(resend=False).batches == ()

    assert lake.orders.run().records.delivered == 0
    assert lake.ids() == list(range(1, 1101))


def test_receipts_that_nobody_needs_any_more_can_be_given_up_before_they_are_missed(lake: Lake) -> None:
    """A lost node of an older epoch is no reason to stop, and the audit or a person may find it all the same."""
    lake.orders.run()
    add_rows(lake.orders.dsn, "orders", 1001, 1101)
    lake.orders.run()
    lake.nodes[0].unlink()
    assert lake.orders.run().records.delivered == 0
    with pytest.raises(ReceiptsUnreadableError, match="accept-sink orders --keep"):
        audit_sink(lake.orders.setup(), lambda _: None, shared=True)

    lake.accept(resend=False)

    add_rows(lake.orders.dsn, "orders", 1101, 1201)
    assert lake.orders.run().records.delivered == 100
    assert lake.ids() == list(range(1, 1201))
