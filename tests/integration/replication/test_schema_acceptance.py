"""A user accepts changed columns that the policy freezes; the next run follows exactly this change, once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, LedgerStateError, SourceError
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.operators._markdown import approval_body
from airflow_provider_ckpt.replication.actions.accept_schema import make_acceptance, refuse_other_columns
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext, apply_in_ledger
from airflow_provider_ckpt.replication.actions.proposals import ActionRequest, carry_out, preview, propose
from airflow_provider_ckpt.replication.run.schema_versions import SchemaVersions
from tests.integration.replication.schema_driver import (
    COLUMNS,
    EVOLVE,
    differences,
    insert,
    plan_only,
    target_columns,
    versions,
)
from tests.services.replication import Replication
from tests.services.tables import execute, scalar


@pytest.fixture
def frozen(items: Replication) -> Replication:
    """Ten rows that were delivered under a policy that follows no change."""
    changed = items.changed(schema=dict.fromkeys(EVOLVE, "freeze"))
    insert(changed, 1, 11)
    changed.run()
    return changed


def accept(items: Replication) -> None:
    """Accept the columns that the source has now."""
    context = ActionContext(items.ledger, "orders", items.setup, "ann", "reviewed")
    apply_in_ledger(context, make_acceptance(items.setup()))


def events(items: Replication, kind: str) -> list[dict[str, object]]:
    """The details of the events of a kind."""
    return [event["detail"] for event in items.ledger.events("orders") if event["kind"] == kind]


def test_an_accepted_change_of_every_kind_reaches_the_target_and_the_next_one_is_frozen_again(
    frozen: Replication,
) -> None:
    execute(
        frozen.dsn,
        "ALTER TABLE items ADD COLUMN note text, DROP COLUMN day, ALTER size TYPE bigint, ALTER name TYPE varchar(3)"
        " USING left(name, 3)",
        "ALTER TABLE items RENAME price TO cost",
    )
    insert(frozen, 11, 21, "id, name, size, cost, note", "i, 'n', i, i, 'x'")
    with pytest.raises(SourceError, match="airflow ckpt schema accept orders"):
        frozen.run()

    accept(frozen)

    assert frozen.run().records.delivered == 10
    assert differences(frozen, "id, name, size, cost, note", "id > 10") == []
    assert target_columns(frozen) | {"name": ""} == {
        "id": "integer", "name": "", "size": "bigint", "cost": "numeric(6,2)", "day": "date", "note": "text",
    }  # fmt: skip
    newest = versions(frozen)[-1]
    assert newest.decision[-1] == "accepted by ann: reviewed"
    [event] = events(frozen, "accept_schema")
    assert event["action"]["fingerprint"] == newest.fingerprint  # type: ignore[index]
    assert event["reason"] == "reviewed"
    assert frozen.ledger.stored_actions("orders") == []
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN more text")
    with pytest.raises(SourceError, match=r"column more \(text\) is new"):
        frozen.run()


def test_columns_that_change_again_before_the_run_are_not_accepted(frozen: Replication) -> None:
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text")
    accept(frozen)
    execute(frozen.dsn, "ALTER TABLE items DROP COLUMN size")
    insert(frozen, 11, 21, "id, name", "i, 'n'")
    before = target_columns(frozen)

    with pytest.raises(SourceError, match=r"column size .* was dropped"):
        frozen.run()

    assert target_columns(frozen) == before
    assert len(versions(frozen)) == 1
    [event] = events(frozen, "action_refused")
    assert event["refusal"] == "the source's columns have changed again since they were accepted."
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN size int")
    with pytest.raises(SourceError, match="size"):
        frozen.run()


def test_columns_that_are_accepted_while_a_run_changes_the_target_are_followed_by_this_run(
    frozen: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = SchemaVersions._begin, []

    def begin_slowly(self: SchemaVersions, *arguments: Any) -> None:
        begin(self, *arguments)
        begun.append(self.current.number)
        if begun == [2]:
            execute(frozen.dsn, "ALTER TABLE items ADD COLUMN more text")
            accept(frozen)

    monkeypatch.setattr(SchemaVersions, "_begin", begin_slowly)
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text")
    accept(frozen)

    frozen.run()

    assert begun == [2, 3]
    assert events(frozen, "action_refused") == []
    assert target_columns(frozen).keys() >= {"note", "more"}
    assert frozen.ledger.stored_actions("orders") == []


def test_an_acceptance_is_refused_by_a_run_that_does_not_compare_columns(frozen: Replication) -> None:
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text")
    accept(frozen)

    frozen.changed(schema=None).run()

    assert frozen.ledger.stored_actions("orders") == []
    [event] = events(frozen, "action_refused")
    assert "no longer has the section schema" in str(event["refusal"])
    with pytest.raises(SourceError, match=r"column note \(text\) is new"):
        frozen.run()


def test_only_the_columns_that_were_shown_are_accepted(frozen: Replication) -> None:
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text")
    shown = make_acceptance(frozen.setup()).fingerprint[:12]
    refuse_other_columns(frozen.setup(), make_acceptance(frozen.setup()), shown)
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN more text")

    with pytest.raises(LedgerStateError, match=f"are not those that were shown: .*, not {shown}"):
        refuse_other_columns(frozen.setup(), make_acceptance(frozen.setup()), shown)
    for text in ("", "12", "x" * 12):
        with pytest.raises(ConfigError, match="is not the fingerprint"):
            refuse_other_columns(frozen.setup(), make_acceptance(frozen.setup()), text)


def test_a_run_with_another_policy_than_the_one_that_was_shown_refuses_the_acceptance(frozen: Replication) -> None:
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text, ALTER size TYPE bigint")
    accept(frozen)
    changed = frozen.changed(schema=dict.fromkeys(EVOLVE, "freeze") | {"new_column": "discard"})

    with pytest.raises(SourceError, match="airflow ckpt schema accept orders"):
        changed.run()

    assert len(versions(frozen)) == 1
    [event] = events(frozen, "action_refused")
    assert "the section schema of the declaration has changed" in str(event["refusal"])
    accept(changed)
    changed.run()
    assert (target_columns(frozen)["size"], "note" in target_columns(frozen)) == ("bigint", False)


def test_an_acceptance_after_which_another_version_began_is_refused(frozen: Replication) -> None:
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text")
    shown = make_acceptance(frozen.setup())
    execute(frozen.dsn, "ALTER TABLE items DROP COLUMN note, ALTER size TYPE bigint")
    accept(frozen)
    frozen.run()
    execute(frozen.dsn, "ALTER TABLE items ALTER size TYPE int, ADD COLUMN note text")
    now = make_acceptance(frozen.setup())
    stale = replace(now, version=shown.version)
    apply_in_ledger(ActionContext(frozen.ledger, "orders", frozen.setup, "ann", "late"), stale)

    with pytest.raises(SourceError, match="airflow ckpt schema accept orders"):
        frozen.run()

    assert (shown.version, now.version, len(versions(frozen))) == (1, 2, 2)
    assert "schema version 2 has begun since" in str(events(frozen, "action_refused")[0]["refusal"])


def test_an_accepted_column_waits_for_planned_batches_and_these_are_read_without_a_dropped_one(
    frozen: Replication,
) -> None:
    insert(frozen, 11, 31)
    plan_only(frozen)
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text DEFAULT 'new', DROP COLUMN name")
    insert(frozen, 31, 51, "id, note", "i, 'later'")
    accept(frozen)

    assert frozen.run().records.delivered == 40

    planned = "SELECT count(*) FROM items_target WHERE id BETWEEN 11 AND 30 AND note IS NULL AND name IS NULL"
    assert scalar(frozen.dsn, planned) == 20
    assert scalar(frozen.dsn, "SELECT count(*) FROM items_target WHERE id > 30 AND note = 'later'") == 20
    assert [(v.number, v.decision[-1]) for v in versions(frozen)[1:]] == [
        (2, "accepted by ann: reviewed"), (3, "accepted by ann: reviewed")
    ]  # fmt: skip
    assert len(events(frozen, "accept_schema")) == 1


def test_another_type_is_followed_once_a_person_has_changed_the_target(frozen: Replication) -> None:
    execute(frozen.dsn, "ALTER TABLE items ALTER size TYPE text")
    insert(frozen, 11, 21, "id, name, size", "i, 'n', 'big'")
    accept(frozen)
    with pytest.raises(ConfigError, match=r"column size .* is integer, which cannot become text without loss"):
        frozen.run()
    execute(frozen.dsn, "ALTER TABLE items_target ALTER size TYPE text")

    assert frozen.run().records.delivered == 10

    assert differences(frozen, COLUMNS) == []
    assert versions(frozen)[-1].decision[0] == (
        "column size (integer) has type text now: the target's column has to store all values of the type"
    )


def test_with_select_the_transform_gets_a_changed_type_that_was_accepted_and_null_for_a_dropped_column(
    items: Replication,
) -> None:
    select = {"id": "id", "name": "'n'", "size": "size + 1", "price": "price"}
    chosen = items.changed(schema=dict.fromkeys(EVOLVE, "freeze"), transform={"select": select})
    insert(chosen, 1, 11)
    chosen.run()
    execute(chosen.dsn, "ALTER TABLE items ALTER size TYPE smallint, DROP COLUMN price")
    insert(chosen, 11, 21, "id, name, size", "i, 'n', i")
    accept(chosen)

    assert chosen.run().records.delivered == 10

    changed = "SELECT count(*) FROM items_target WHERE id > 10 AND size = id + 1 AND price IS NULL"
    assert scalar(chosen.dsn, changed) == 10


def test_there_is_nothing_to_accept(items: Replication, frozen: Replication) -> None:
    with pytest.raises(LedgerStateError, match="columns are those of schema version 1"):
        make_acceptance(frozen.setup())
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text")
    with pytest.raises(LedgerStateError, match="the policy allows the change"):
        make_acceptance(items.setup())
    accept(frozen)
    action = make_acceptance(frozen.setup())
    with pytest.raises(LedgerStateError, match="ann has accepted this change already, as action 1"):
        refuse_other_columns(frozen.setup(), action, action.fingerprint)


def test_without_the_section_or_a_version_there_is_nothing_to_accept(items: Replication, orders: Replication) -> None:
    with pytest.raises(ConfigError, match="does not declare the section schema"):
        make_acceptance(orders.setup())
    with pytest.raises(LedgerStateError, match="no run has recorded the source's columns yet"):
        make_acceptance(items.setup())


@pytest.mark.parametrize(
    ("statement", "transform", "reason"),
    [
        ("RENAME id TO key", {}, "source table public.items has no column 'id'"),
        ("ADD COLUMN __pos text", {}, "column __pos has the name of a control column"),
        ('ADD COLUMN "Size" int', {}, "differs from another only in case"),
        ("RENAME size TO amount", {"where": "size > 0"}, "the transform uses it under its old name"),
    ],
)
def test_a_change_that_no_run_can_follow_is_not_accepted(
    frozen: Replication, statement: str, transform: dict[str, str], reason: str
) -> None:
    using = frozen.changed(transform=transform) if transform else frozen
    execute(frozen.dsn, f"ALTER TABLE items {statement}")

    with pytest.raises(CkptError, match=reason):
        make_acceptance(using.setup())


def test_an_acceptance_is_proposed_with_the_changed_columns_and_only_once(frozen: Replication) -> None:
    execute(frozen.dsn, "ALTER TABLE items ADD COLUMN note text")
    insert(frozen, 11, 21)
    context = ActionContext(frozen.ledger, "orders", frozen.setup, "ann", "reviewed")
    request = ActionRequest(ActionKind.ACCEPT_SCHEMA)

    action = propose(context, request).action
    assert action is not None
    proposal = Proposal.new("orders", action, origin="care/one/preview", actor="ann", reason="reviewed")
    body = approval_body(proposal, preview(context, action)).replace("\\", "")
    assert "column note" in body
    assert "the next run follows the change" in body
    assert frozen.ledger.stored_actions("orders") == []
    carry_out(context, action)

    with pytest.raises(LedgerStateError, match="ann has accepted this change already"):
        propose(context, request)
    assert frozen.run().records.delivered == 10
    assert "note" in target_columns(frozen)
