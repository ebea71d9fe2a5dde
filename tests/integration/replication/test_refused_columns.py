"""Rows with a value in a refused column become dead letters, and are delivered once the policy allows the column."""

from __future__ import annotations

import json

import pytest

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.replication.actions.accept_schema import make_acceptance
from airflow_provider_ckpt.replication.actions.carry_out_action import (
    ActionContext,
    act_on_dead_letters,
    apply_in_ledger,
)
from tests.integration.replication.schema_driver import (
    COLUMNS,
    differences,
    insert,
    plan_only,
    target_columns,
    versions,
)
from tests.services.replication import Replication
from tests.services.tables import execute, scalar


@pytest.fixture
def refusing(items: Replication) -> Replication:
    """Ten rows that were delivered under a policy that refuses new columns and other types."""
    changed = items.changed(schema={"new_column": "dead_letter", "other_type": "dead_letter"})
    insert(changed, 1, 11)
    changed.run()
    return changed


def replay(items: Replication) -> None:
    """Replay all dead letters, and run."""
    context = ActionContext(items.ledger, "orders", items.setup, "ann", "admitted")
    act_on_dead_letters(context, ActionKind.REPLAY_DEAD_LETTERS, Selection(), None)
    items.run()


def test_rows_with_a_new_column_are_dead_letters_until_the_policy_admits_it(
    items: Replication, refusing: Replication
) -> None:
    insert(refusing, 11, 21)
    plan_only(refusing)
    execute(refusing.dsn, "ALTER TABLE items ADD COLUMN note text DEFAULT 'old'")
    insert(refusing, 21, 31, f"{COLUMNS}, note", "i, 'n', i, i, NULL, CASE i % 2 WHEN 0 THEN 'new' END")

    counts = refusing.run().records

    assert (counts.delivered, counts.dead_lettered) == (15, 5)
    assert "note" not in target_columns(refusing)
    [(error, value)] = execute(
        refusing.dsn, "SELECT error, convert_from(value, 'UTF8') FROM ckpt_sink_dead_letter ORDER BY position LIMIT 1"
    )
    assert "column note is new, and schema.new_column is dead_letter" in error
    assert json.loads(value).items() >= {"id": 22, "note": "new"}.items()
    assert refusing.run().records.read == 0
    replay(refusing)
    assert scalar(refusing.dsn, "SELECT count(*) FROM items_target") == 25

    items.run()
    replay(items)

    assert target_columns(items)["note"] == "text"
    assert differences(items, f"{COLUMNS}, note", "id > 20") == []
    assert scalar(items.dsn, "SELECT count(*) FROM items_target WHERE id <= 20 AND note IS NULL") == 20
    assert versions(items)[-1].decision == ("column note (text) is no longer refused: the target gets it",)


def test_rows_of_another_type_are_dead_letters_until_a_user_has_changed_the_target_and_accepts_it(
    refusing: Replication,
) -> None:
    execute(refusing.dsn, "ALTER TABLE items ALTER size TYPE text USING CASE WHEN size > 5 THEN 'big' END")
    insert(refusing, 11, 21, "id, name, size", "i, 'n', CASE i % 2 WHEN 0 THEN 'big' END")

    counts = refusing.run().records

    assert (counts.delivered, counts.dead_lettered) == (5, 5)
    assert scalar(refusing.dsn, "SELECT count(*) FROM items_target WHERE id > 10 AND size IS NULL") == 5
    assert target_columns(refusing)["size"] == "integer"
    execute(refusing.dsn, "ALTER TABLE items_target ALTER size TYPE text")
    context = ActionContext(refusing.ledger, "orders", refusing.setup, "ann", "agreed")
    apply_in_ledger(context, make_acceptance(refusing.setup()))
    refusing.run()
    replay(refusing)

    assert differences(refusing, COLUMNS, "id > 10") == []
    assert refusing.ledger.stored_actions("orders") == []


def test_a_type_that_is_changed_back_is_read_again(refusing: Replication) -> None:
    execute(refusing.dsn, "ALTER TABLE items ALTER size TYPE text")
    insert(refusing, 11, 16, "id, name, size", "i, 'n', i::text")
    assert refusing.run().records.dead_lettered == 5
    execute(refusing.dsn, "ALTER TABLE items ALTER size TYPE int USING size::int")
    insert(refusing, 16, 21)

    assert refusing.run().records.delivered == 5

    assert differences(refusing, "id, name, size", "id NOT BETWEEN 11 AND 15") == []
    assert versions(refusing)[-1].decision == ("column size (text) has type integer now: it is read again",)


def test_a_type_that_is_changed_back_together_with_the_name_is_read_again_where_renames_are_followed(
    refusing: Replication,
) -> None:
    following = refusing.changed(schema={"renamed_column": "follow"})
    execute(following.dsn, "ALTER TABLE items ALTER size TYPE text")
    insert(following, 11, 16, "id, name, size", "i, 'n', i::text")
    assert following.run().records.dead_lettered == 5
    execute(following.dsn, "ALTER TABLE items RENAME size TO amount", "ALTER TABLE items ALTER amount TYPE int USING 1")
    insert(following, 16, 21, "id, name, amount", "i, 'n', i")

    with pytest.raises(SourceError, match=r"column size \(text\) was renamed to amount, and schema.renamed_column is"):
        refusing.changed(schema={"renamed_column": "freeze"}).run()
    assert following.run().records.delivered == 5

    assert target_columns(following)["amount"] == "integer"
    assert differences(following, "id, name, amount", "id > 15") == []
    assert versions(following)[-1].decision == (
        "column size (text) was renamed to amount: the target's column is renamed, and it is read again",
    )


def test_rows_that_where_filters_are_not_refused(refusing: Replication) -> None:
    some = refusing.changed(transform={"where": "id % 2 = 0"})
    execute(some.dsn, "ALTER TABLE items ADD COLUMN note text")
    insert(some, 11, 21, f"{COLUMNS}, note", "i, 'n', i, i, NULL, CASE WHEN i % 3 < 2 THEN 'new' END")

    counts = some.run().records

    assert (counts.filtered, counts.dead_lettered, counts.delivered) == (5, 3, 2)


def test_a_column_can_have_a_policy_of_its_own(items: Replication) -> None:
    own = items.changed(schema={"new_column": "evolve", "columns": {"secret": {"new_column": "discard"},
                        "size": {"other_type": "dead_letter"}}})  # fmt: skip
    insert(own, 1, 11)
    own.run()
    execute(own.dsn, "ALTER TABLE items ADD COLUMN secret text, ADD COLUMN note text, ALTER size TYPE text")
    insert(own, 11, 21, "id, name, note, secret, size", "i, 'n', 'seen', 'hidden', CASE WHEN i > 15 THEN 'big' END")

    counts = own.run().records

    assert (counts.delivered, counts.dead_lettered) == (5, 5)
    assert "note" in target_columns(own)
    assert "secret" not in target_columns(own)
    assert scalar(own.dsn, "SELECT count(*) FROM items_target WHERE note = 'seen' AND size IS NULL") == 5
