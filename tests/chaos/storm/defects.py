"""Introduce defects into the ledger's code in a worker process, to test that the storm finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from airflow_provider_ckpt.core import refuse_stale_epoch
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.commands import settle
from tests.chaos.storm.scene import Defect


def bring_in(defect: Defect) -> None:
    """Break the ledger's code in this process until the process ends."""
    _BREAK.get(defect, lambda: None)()


def _epoch() -> None:
    """Make the ledger accept every epoch, however old."""
    refuse_stale_epoch.check_epoch = lambda held, _epoch, _owner: held  # type: ignore[assignment, return-value]


def _forgets() -> None:
    """Make the ledger acknowledge every third receipt without storing it."""
    take, calls = settle.apply_receipt, count(1)

    def forgetful(work: Any, receipt: Any) -> bool:
        return next(calls) % 3 == 0 or take(work, receipt)

    settle.apply_receipt = forgetful


def _counts() -> None:
    """Make the ledger lose the record counts of every third batch that the checkpoint passes."""
    advance, calls = Partition.advance, count(1)

    def forgetful(partition: Partition) -> list[Event]:
        known = len(partition.passed)
        events = advance(partition)
        partition.passed[known:] = [
            replace(batch, receipt=replace(batch.receipt, counts=Counts()))
            if batch.receipt is not None and next(calls) % 3 == 0
            else batch
            for batch in partition.passed[known:]
        ]
        return events

    Partition.advance = forgetful  # type: ignore[assignment, method-assign]


_BREAK: dict[Defect, Callable[[], None]] = {
    Defect.EPOCH: _epoch,
    Defect.FORGETS: _forgets,
    Defect.COUNTS: _counts,
}
