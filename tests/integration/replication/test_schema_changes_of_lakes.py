"""Changes of a source's columns reach Delta and Iceberg tables; rows have the columns of their version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import CkptError, ConfigError
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.actions.accept_schema import make_acceptance
from airflow_provider_ckpt.replication.actions.carry_out_action import (
    ActionContext,
    act_on_dead_letters,
    apply_in_ledger,
)
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.integration.connectors.two_phase.formats import FORMATS
from tests.integration.connectors.two_phase.harness import TableHarness
from tests.integration.replication.schema_driver import insert, plan_only, versions
from tests.services.replication import Replication
from tests.services.tables import execute


@dataclass
class Lake:
    """A replication of ``items`` to a table of a lake.

    :param table: the table
    :param items: the replication
    """

    table: TableHarness
    items: Replication

    def values(self, name: str, condition: Callable[[int], bool] = lambda _: True) -> set[Any]:
        """Values of a column in the rows whose id meets a condition."""
        return {row[name] for row in self.table.rows() if condition(row["id"])}

    @property
    def ids(self) -> list[int]:
        """Ids of the rows in the table, with repetitions."""
        return [row["id"] for row in self.table.rows()]


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, items: Replication, tmp_path: Path) -> Lake:
    """An empty source, and a table that does not exist yet."""
    table = FORMATS[request.param](tmp_path)
    others = {"lake": table.connection} if table.connection is not None else {}
    return Lake(table, replace(items, document={**items.document, "sink": table.sink}, others=others))


def test_new_and_dropped_columns_reach_the_table_and_split_the_rows_at_their_position(lake: Lake) -> None:
    insert(lake.items, 1, 31)
    assert lake.items.run().records.delivered == 30
    execute(
        lake.items.dsn,
        "ALTER TABLE items ADD COLUMN note text NOT NULL DEFAULT 'old', ADD COLUMN weight real, DROP COLUMN day",
        "ALTER TABLE items ALTER name TYPE text, ALTER price TYPE numeric(12, 4)",
    )
    insert(lake.items, 31, 61, "id, name, size, price, note, weight", "i, repeat('long', 9), i, 1234.5678, 'new', 0.5")

    assert lake.items.run().records.delivered == 30

    assert lake.ids == list(range(1, 61))
    assert lake.table.columns() == ["id", "name", "size", "price", "day", "note", "weight"]
    assert (lake.values("note", lambda i: i <= 30), lake.values("note", lambda i: i > 30)) == ({None}, {"new"})
    assert (lake.values("weight", lambda i: i <= 30), lake.values("weight", lambda i: i > 30)) == ({None}, {0.5})
    assert lake.values("day", lambda i: i > 30) == {None}
    assert None not in lake.values("day", lambda i: i <= 30)
    assert lake.values("price", lambda i: i > 30) == {"1234.5678"}
    assert [(found.number, found.position) for found in versions(lake.items)] == [(1, -(2**63)), (2, 31)]
    assert audit_sink(lake.items.setup(), lambda _: None)["differences"] == []


def test_batches_that_were_planned_before_are_delivered_without_the_column(lake: Lake) -> None:
    insert(lake.items, 1, 31)
    plan_only(lake.items)
    execute(lake.items.dsn, "ALTER TABLE items ADD COLUMN note text DEFAULT 'new', DROP COLUMN name")
    insert(lake.items, 31, 51, "id, note", "i, 'later'")

    lake.items.run()

    assert lake.ids == list(range(1, 51))
    assert (lake.values("note", lambda i: i <= 30), lake.values("note", lambda i: i > 30)) == ({None}, {"later"})
    assert lake.values("name") == {None}
    assert [(v.number, v.position, len(v.replanned)) for v in versions(lake.items)] == [
        (1, -(2**63), 0), (2, 31, 3), (3, 31, 0)
    ]  # fmt: skip


def test_a_crash_between_the_commit_and_the_ledger_changes_the_table_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(lake.items, 1, 11)
    lake.items.run()
    execute(lake.items.dsn, "ALTER TABLE items ADD COLUMN note text")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "record_schema_version", _fail)
        with pytest.raises(CkptError, match="the ledger is gone"):
            lake.items.run()
    assert lake.table.columns()[-1] == "note"
    execute(lake.items.dsn, "ALTER TABLE items ADD COLUMN more text")
    insert(lake.items, 11, 21, "id, name, note, more", "i, 'n', 'a', 'b'")

    lake.items.run()

    assert lake.table.columns()[-2:] == ["note", "more"]
    assert (lake.values("note"), lake.values("more")) == ({None, "a"}, {None, "b"})
    assert [found.number for found in versions(lake.items)] == [1, 2, 3]


def _fail(*_: object) -> None:
    raise CkptError("the ledger is gone")


def test_a_discarded_column_is_not_read_and_the_policy_can_be_loosened_later(lake: Lake) -> None:
    discarding = lake.items.changed(schema={"new_column": "discard"})
    insert(lake.items, 1, 11)
    discarding.run()
    execute(lake.items.dsn, "ALTER TABLE items ADD COLUMN note text")
    insert(lake.items, 11, 21, "id, name, note", "i, 'n', 'a'")

    discarding.run()

    assert "note" not in lake.table.columns()
    execute(lake.items.dsn, "ALTER TABLE items ADD COLUMN more text")
    insert(lake.items, 21, 31, "id, name, more", "i, 'n', 'b'")

    lake.items.run()

    assert lake.ids == list(range(1, 31))
    assert lake.values("more") == {None, "b"}


def test_a_column_that_was_dropped_and_is_discarded_when_it_comes_back_stays_null(lake: Lake) -> None:
    insert(lake.items, 1, 11)
    lake.items.run()
    execute(lake.items.dsn, "ALTER TABLE items DROP COLUMN size")
    insert(lake.items, 11, 21, "id, name", "i, 'n'")
    lake.items.run()
    execute(lake.items.dsn, "ALTER TABLE items ADD COLUMN size int")
    insert(lake.items, 21, 31, "id, name, size", "i, 'n', i")

    lake.items.changed(schema={"new_column": "discard"}).run()

    assert lake.ids == list(range(1, 31))
    assert lake.values("size", lambda i: i > 10) == {None}


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_wider_types_and_other_names_reach_an_iceberg_table(lake: Lake) -> None:
    insert(lake.items, 1, 31)
    lake.items.run()
    execute(
        lake.items.dsn,
        "ALTER TABLE items ALTER size TYPE bigint, ALTER id TYPE bigint",
        "ALTER TABLE items RENAME size TO amount",
    )
    insert(lake.items, 31, 61, "id, name, amount", "i, 'n', 5000000000 + i")

    lake.items.run()

    assert lake.values("amount") == {*range(1, 31), *(5_000_000_000 + i for i in range(31, 61))}
    assert lake.table.columns() == ["id", "name", "amount", "price", "day"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ALTER size TYPE bigint", "column size of the Delta table .* is integer, and the source's values are long"),
        ("RENAME size TO amount", "column size of the Delta table .* cannot be renamed to amount"),
    ],
)
@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_change_that_a_delta_table_cannot_make_ends_the_run_before_it_plans(
    lake: Lake, statement: str, message: str
) -> None:
    insert(lake.items, 1, 11)
    lake.items.run()
    execute(lake.items.dsn, f"ALTER TABLE items {statement}")
    insert(lake.items, 11, 21, "id, name", "i, 'n'")

    with pytest.raises(ConfigError, match=message):
        lake.items.run()

    assert lake.ids == list(range(1, 11))
    assert [found.number for found in versions(lake.items)] == [1]


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_a_renamed_column_becomes_a_new_one_of_a_delta_table_if_the_policy_says_so(lake: Lake) -> None:
    renaming = lake.items.changed(schema={"renamed_column": "as_new"})
    insert(lake.items, 1, 11)
    renaming.run()
    execute(lake.items.dsn, "ALTER TABLE items RENAME size TO amount")
    insert(lake.items, 11, 21, "id, name, amount", "i, 'n', i")

    renaming.run()

    assert lake.values("size", lambda i: i > 10) == {None}
    assert lake.values("amount") == {None, *range(11, 21)}


def test_the_section_without_keys_records_versions_of_a_transform_that_chooses_the_columns(lake: Lake) -> None:
    chosen = lake.items.changed(schema={}, transform={"select": {"id": "id", "name": "upper(name)"}})
    chosen = chosen.changed(schema=dict.fromkeys(lake.items.document["schema"], "freeze"))
    insert(lake.items, 1, 11)
    chosen.run()
    execute(lake.items.dsn, "ALTER TABLE items ADD COLUMN note text, DROP COLUMN size")
    insert(lake.items, 11, 21, "id, name", "i, 'n'")

    assert chosen.run().records.delivered == 10

    assert lake.table.columns() == ["id", "name"]
    assert [found.number for found in versions(lake.items)] == [1, 2]


def test_rows_with_a_refused_column_are_dead_letters_and_are_replayed_once_it_is_admitted(lake: Lake) -> None:
    refusing = lake.items.changed(schema={"new_column": "dead_letter"})
    insert(refusing, 1, 11)
    refusing.run()
    execute(refusing.dsn, "ALTER TABLE items ADD COLUMN note text")
    insert(refusing, 11, 21, "id, name, note", "i, 'n', CASE i % 2 WHEN 0 THEN 'new' END")

    counts = refusing.run().records

    assert (counts.delivered, counts.dead_lettered) == (5, 5)
    assert "note" not in lake.table.columns()
    lake.items.run()
    context = ActionContext(lake.items.ledger, "orders", lake.items.setup, "ann", "admitted")
    act_on_dead_letters(context, ActionKind.REPLAY_DEAD_LETTERS, Selection(), None)
    lake.items.run()

    assert lake.ids == list(range(1, 21))
    assert {row["id"] for row in lake.table.rows() if row["note"] == "new"} == {12, 14, 16, 18, 20}


def test_an_accepted_narrower_type_is_stored_in_the_wider_column(lake: Lake) -> None:
    frozen = lake.items.changed(schema=dict.fromkeys(lake.items.document["schema"], "freeze"))
    execute(frozen.dsn, "ALTER TABLE items ALTER size TYPE bigint")
    insert(frozen, 1, 11)
    frozen.run()
    execute(frozen.dsn, "ALTER TABLE items ALTER size TYPE int")
    insert(frozen, 11, 21)
    apply_in_ledger(
        ActionContext(frozen.ledger, "orders", frozen.setup, "ann", "reviewed"), make_acceptance(frozen.setup())
    )

    assert frozen.run().records.delivered == 10

    assert lake.values("size") == set(range(1, 21))
