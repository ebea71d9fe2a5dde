"""Acknowledge three batches out of order: the checkpoint waits for the first."""

from datetime import UTC, datetime

from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict

now = datetime.now(UTC)
orders = Partition("orders")
for start in (0, 10, 20):
    orders.plan(Range(start, start + 10))
for seq in (0, 1, 2):
    orders.begin(orders.planned_ticket(seq), epoch=1, now=now)


def delivered(seq: int) -> Receipt:
    batch = orders.batches[seq]
    return Receipt(batch.key, batch.range, Verdict.DELIVERED, 1, batch.attempts, Counts(10, 10), now)


orders.ack(delivered(2))
orders.ack(delivered(1))
assert orders.committed == 0
assert sorted(orders.pending_acks) == [1, 2]
orders.ack(delivered(0))
assert orders.committed == 30
