"""Check the conditions on a pipeline for which sensors wait, in a task or in the triggerer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.lag import known_lag, lag_positions, not_begun
from airflow_provider_ckpt.replication.observe.lag import lag

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import PipelineContext

T = TypeVar("T")


class ConditionKind(StrEnum):
    """Kinds of conditions: limits of the lag, a checkpoint to reach, and numbers of dead letters or held batches."""

    LAG_AT_LEAST = "lag_at_least"
    LAG_AT_MOST = "lag_at_most"
    CHECKPOINT = "checkpoint"
    DEAD_LETTERS = "dead_letters"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition on one pipeline, for which a sensor waits.

    :param kind: kind of the condition
    :param number: limit of the lag, or least number of dead letters or held batches; for a checkpoint, the position
        that every source partition must reach
    :param partition: for a lag or checkpoint, the only source partition that counts; None for all
    :param positions: for a checkpoint, positions by source partition instead of ``number``
    :param error_types: for dead letters, the error types that count; empty for all
    """

    kind: ConditionKind
    number: int = 1
    partition: str | None = None
    positions: Mapping[str, int] = field(default_factory=dict)
    error_types: tuple[str, ...] = ()

    def check(self, ledger: Ledger, pipeline: str, setup: Callable[[], PipelineContext]) -> tuple[bool, dict[str, Any]]:
        """Return whether the condition is met, and the observed values, JSON-ready.

        A pipeline that has never run can meet only a condition on its lag.

        :param ledger: the ledger
        :param pipeline: name of the pipeline
        :param setup: creates the pipeline's setup; called only to measure the lag, or if the pipeline has never run
        :raises ConfigError: if the pipeline is not declared, or has no such partition
        """
        if self.kind in (ConditionKind.LAG_AT_LEAST, ConditionKind.LAG_AT_MOST):
            return self._lag(pipeline, lag_positions(lag(setup())))
        if pipeline not in ledger.pipelines():
            setup()  # fails if the pipeline is not declared either
            return False, {"never_run": True}
        status = ledger.status(pipeline)
        if self.kind is ConditionKind.CHECKPOINT:
            return self._checkpoint(pipeline, status)
        if self.kind is ConditionKind.DEAD_LETTERS:
            return self._dead_letters(status)
        held = status["batches"].get("held", 0)
        return held >= self.number, {"held": held, "batches": [item["batch"] for item in status["held"]]}

    def to_json(self) -> dict[str, Any]:
        """Return the condition as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "kind": self.kind.value,
            "number": self.number,
            "partition": self.partition,
            "positions": dict(self.positions),
            "error_types": list(self.error_types),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Condition:
        """Return the condition from a dict that :meth:`to_json` returned."""
        return cls(
            ConditionKind(data["kind"]),
            data["number"],
            data["partition"],
            dict(data["positions"]),
            tuple(data["error_types"]),
        )

    def _lag(self, pipeline: str, found: dict[str, int | None]) -> tuple[bool, dict[str, Any]]:
        """Compare the lag with the limit; the lag of a partition that has not begun is greater than every limit.

        :param pipeline: name of the pipeline, for messages
        :param found: lag of each source partition, in positions; None for a partition that has not begun
        :return: whether the condition is met, and the lag, JSON-ready
        """
        if self.partition is not None:
            found = {self.partition: _value_of(found, self.partition, pipeline)}
        total, unknown = known_lag(found), not_begun(found)
        if self.kind is ConditionKind.LAG_AT_LEAST:
            met = bool(unknown) or total >= self.number
        else:
            met = not unknown and total <= self.number
        return met, {"lag": found, "total": total, "not_begun": unknown}

    def _checkpoint(self, pipeline: str, status: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Return whether each partition's checkpoint has reached its position to wait for, and the checkpoints.

        The condition is not met as long as no run has started a source partition.

        :param pipeline: name of the pipeline, for messages
        :param status: the ledger's ``status`` of the pipeline
        """
        found = {part["id"]: part["committed"] for part in status["partitions"] if part["ends_at"] is None}
        if not found:
            return False, {"checkpoint": {}}  # the first run has not started any partition
        wanted = dict(self.positions)
        if not wanted:
            wanted = dict.fromkeys([self.partition] if self.partition is not None else found, self.number)
        reached = all(_value_of(found, name, pipeline) >= position for name, position in wanted.items())
        return reached, {"checkpoint": {name: found[name] for name in wanted}}

    def _dead_letters(self, status: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Return whether there are at least ``number`` dead letters of the chosen error types, and the numbers by type.

        Dead letters that were replayed or discarded do not count.

        :param status: the ledger's ``status`` of the pipeline
        """
        found = {
            kind: count
            for kind, count in status["dead_letters"].items()
            if not self.error_types or kind in self.error_types
        }
        return sum(found.values()) >= self.number, {"dead_letters": found, "total": sum(found.values())}


def _value_of(found: Mapping[str, T], partition: str, pipeline: str) -> T:
    """Return the value of a source partition.

    :param found: values by partition
    :param partition: id of the source partition
    :param pipeline: name of the pipeline, for the message
    :raises ConfigError: if there is no such partition
    """
    if partition not in found:
        known = ", ".join(sorted(found)[:10]) or "none yet"
        raise ConfigError(f"there is no source partition {partition!r}.", pipeline=pipeline, hint=f"Known: {known}.")
    return found[partition]
