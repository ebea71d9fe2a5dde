"""Record of one call of the core and its effect on one partition, for the checks of situations and expectations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.tickets import Event


class Seen:
    """One question, or one user's action, and its effect on one partition.

    :param arguments: the question's, or the action
    :param passed: the range receipts of the partition's generation, afterwards
    """

    __slots__ = ("after", "arguments", "before", "events", "name", "passed", "refused")

    def __init__(
        self,
        name: str,
        arguments: Sequence[Any],
        before: Partition,
        after: Partition,
        passed: tuple[RangeReceipt, ...],
        events: tuple[Event, ...] = (),
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.before = before
        self.after = after
        self.passed = passed
        self.events = events
        self.refused = False

    @property
    def kinds(self) -> set[str]:
        """The kinds of what happened."""
        return {event.kind for event in self.events}

    @property
    def moved(self) -> bool:
        """Return whether the checkpoint moved inside its generation."""
        return self.before.generation == self.after.generation and self.before.committed != self.after.committed
