"""The notifier with a real ledger: which notices it sends, and by which channels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import BaseNotifier

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import SinkError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.notifications.ckpt import CkptNotifier
from airflow_provider_ckpt.operators.phases import CkptDrainOperator
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.integration.ledger.ledger_driver import LedgerDriver

DECLARATION = {
    "name": "orders",
    "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id"},
    "sink": {"type": "postgres", "connection": "warehouse", "table": "orders"},
}


class Letter(BaseNotifier):
    """A channel such as e-mail: it has templates of its own, and keeps what it would send."""

    template_fields = ("subject", "body")
    sent: list[tuple[str, str]]

    def __init__(self, subject: str = "{{ ckpt.subject }}", body: str = "{{ ckpt.text }}") -> None:
        super().__init__()
        self.subject, self.body = subject, body
        self.sent = []

    def notify(self, context: Any) -> None:
        """Keep it."""
        self.sent.append((self.subject, self.body))


def summary(**parts: Any) -> dict[str, Any]:
    """Return the summary that a run passes to the notifier."""
    return RunSummary("orders", 1, **parts).to_json()


def context(document: Any = None, exception: BaseException | None = None, map_index: int = -1, **handed: Any) -> Any:
    """A task's, as Airflow gives it to a callback; a mapped task's documents are a dict by map index."""
    pulled = {"replicate": document, **handed}

    def xcom_pull(task_ids: str, map_indexes: int | None = None) -> Any:
        found = pulled[task_ids]
        members = found if isinstance(found, dict) and all(isinstance(key, int) for key in found) else {-1: found}
        if map_indexes is not None:
            return members.get(map_indexes)
        every = list(members.values())
        return every[0] if len(every) == 1 else every

    ti = SimpleNamespace(task_id="replicate", dag_id="shop", run_id="manual", map_index=map_index, xcom_pull=xcom_pull)
    found = {"ti": ti, "task": SimpleNamespace(task_id="replicate"), "dag": None}
    return found | ({"exception": exception} if exception else {})


@pytest.fixture
def declared(orders: LedgerDriver) -> LedgerDriver:
    """Pipeline ``orders`` as a run has declared it."""
    orders.ledger.declare(orders.lease, DECLARATION)
    return orders


def test_a_run_that_needs_nobody_tells_nobody(declared: LedgerDriver) -> None:
    channel = Letter()

    CkptNotifier(channel)(context(summary(records=Counts(10, 10, 0, 0), batches=1)))
    CkptNotifier(channel)(context())
    CkptNotifier(channel)(context({"some": "other task's document"}))

    assert channel.sent == []


def test_dead_letters_are_told_with_their_types_and_their_place(declared: LedgerDriver) -> None:
    channel = Letter()

    CkptNotifier(channel)(context(summary(records=Counts(10, 7, 0, 3), errors={"Sink": 3})))

    [(subject, body)] = channel.sent
    assert subject == "Pipeline orders: 3 records dead-lettered"
    assert "Dead letters by error: 3 Sink. They are in table ckpt_sink_dead_letter of connection warehouse." in body
    assert "airflow ckpt dlq replay orders" in body


def test_held_batches_are_named_by_the_ledger(declared: LedgerDriver) -> None:
    [batch] = declared.plan(10)
    declared.action(ActionKind.HOLD, batch)
    channel = Letter()

    CkptNotifier(channel)(context(summary(batches_by_state={"held": 1}), AirflowFailException("1 batches are held")))

    [(subject, body)] = channel.sent
    assert subject == "Pipeline orders: failed, 1 batches held"
    assert "It failed: 1 batches are held" in body
    assert "Held: t#0: a user held it" in body


def test_expired_ranges_are_told(declared: LedgerDriver) -> None:
    channel = Letter(body="{{ ckpt.expired[0].partition }}")

    CkptNotifier(channel)(context(summary(expired=[{"partition": "t", "range": [3, 9]}])))

    assert channel.sent == [("Pipeline orders: 1 ranges expired without a receipt", "t")]


def test_a_failure_is_told_in_our_own_words_and_in_nobody_elses(declared: LedgerDriver) -> None:
    ours, foreign = Letter(), Letter()
    error = AirflowException("wrapped")
    error.__cause__ = SinkError("no route to host", pipeline="orders")

    CkptNotifier(ours)(context(None, error))
    CkptNotifier(foreign)(context(None, RuntimeError("postgresql://me:s3cret@db")))

    assert "It failed: [Sink] pipeline orders: no route to host" in ours.sent[0][1]
    assert "RuntimeError; see the task's log" in foreign.sent[0][1]
    assert "s3cret" not in foreign.sent[0][1]


def test_the_failure_of_a_task_that_was_given_a_name_is_told_of_that_pipeline(declared: LedgerDriver) -> None:
    channel = Letter()
    failed = context(None, RuntimeError("lost"))
    failed["task"] = CkptDrainOperator(task_id="replicate", pipeline="orders")

    CkptNotifier(channel)(failed)

    assert channel.sent[0][0] == "Pipeline orders: failed"


def test_what_data_says_is_no_template(declared: LedgerDriver) -> None:
    channel = Letter()
    evil = {"partition": "{{ 7 * 7 }}{% raw %}", "range": [0, 1]}

    CkptNotifier(channel)(context(summary(expired=[evil])))

    assert "{{ 7 * 7 }}{% raw %}" in channel.sent[0][1]


def test_only_what_was_asked_for_is_told(declared: LedgerDriver) -> None:
    channel = Letter()

    CkptNotifier(channel, reasons=["held"])(context(summary(records=Counts(1, 0, 0, 1))))

    assert channel.sent == []


def test_of_a_task_group_the_latest_task_that_handed_something_over_counts(declared: LedgerDriver) -> None:
    channel = Letter()
    handed = {"epoch": 1, "planned": 1, "summary": summary(records=Counts(5, 3, 0, 2))}

    CkptNotifier(channel, task_ids=["retry", "route"])(context(None, retry=None, route=handed))

    assert channel.sent[0][0] == "Pipeline orders: 2 records dead-lettered"


def test_each_member_of_a_mapped_task_tells_its_own_story(declared: LedgerDriver) -> None:
    first, third = Letter(), Letter()
    handed = {0: summary(records=Counts(5, 3, 0, 2)), 1: summary(records=Counts(5, 5, 0, 0))}

    CkptNotifier(first)(context(handed, map_index=0))
    CkptNotifier(third)(context({0: handed[0]}, RuntimeError("lost"), map_index=2))

    assert [subject for subject, _ in first.sent] == ["Pipeline orders: 2 records dead-lettered"]
    assert [subject for subject, _ in third.sent] == ["Pipeline replicate: failed"]
    assert "(task replicate[2] of shop, run manual)" in third.sent[0][1]


def test_every_channel_is_called_even_if_one_fails(declared: LedgerDriver) -> None:
    first, last = Letter(), Letter()

    def broken(_: Any) -> None:
        raise ConnectionError("no mail today")

    with pytest.raises(ConnectionError):
        CkptNotifier(first, broken, last)(context(summary(records=Counts(1, 0, 0, 1))))

    assert len(first.sent) == len(last.sent) == 1


def test_without_a_channel_it_is_logged(declared: LedgerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    notifier = CkptNotifier()
    told: list[str] = []
    monkeypatch.setattr(notifier.log, "warning", lambda message, *parts: told.append(message % parts))

    notifier(context(summary(records=Counts(1, 0, 0, 1))))

    assert told[0].startswith("Pipeline orders: 1 records dead-lettered (task replicate of shop, run manual)")


def test_a_ledger_that_does_not_answer_keeps_nobody_from_being_told(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CKPT__SQL_ALCHEMY_CONN", "sqlite:////nowhere/ckpt.db")
    channel = Letter()

    CkptNotifier(channel)(context(summary(batches_by_state={"held": 2}, errors=cast("Any", {}))))

    assert channel.sent[0][0] == "Pipeline orders: 2 batches held"
