"""``CkptCheckpointSensor``: waits until a pipeline's checkpoint has passed a position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.sensors.base import CkptSensor

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.observe.conditions import Condition


class CkptCheckpointSensor(CkptSensor):
    """Wait until all before a position has its verdict: a checkpoint is the next position to read.

    :param position: what every source partition must have reached, or by partition: then only those are waited for
    :param partition: with one position: of this source partition alone
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "position", "partition")

    def __init__(
        self, *, position: int | str | Mapping[str, int | str], partition: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.position = position
        self.partition = partition

    def condition(self) -> Condition:
        """What is waited for."""
        from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind

        if isinstance(self.position, Mapping):
            positions = {name: _number(f"position of {name}", value) for name, value in self.position.items()}
            return Condition(ConditionKind.CHECKPOINT, positions=positions)
        number = _number("position", self.position)
        return Condition(ConditionKind.CHECKPOINT, number, _templates.word(self.partition))


def _number(name: str, value: object) -> int:
    found = _templates.number(name, value)
    if found is None:
        raise ConfigError(f"{name} is empty; it must be a whole number.")
    return found
