"""``CkptLagSensor``: waits until a pipeline has enough to do, or has caught up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.sensors.base import CkptSensor

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.observe.conditions import Condition


class CkptLagSensor(CkptSensor):
    """Wait until the source is so far ahead of the checkpoint, or no farther; asks the source itself.

    Positions are offsets of Kafka, bytes of text files, rows of Parquet files, and of a table whatever its cursor
    counts. Give one of the two.

    :param at_least: there is enough to do: so many positions are ahead of the checkpoint
    :param at_most: it has caught up: no more than so many are
    :param partition: of this source partition alone; else all of them together
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "at_least", "at_most", "partition")

    def __init__(
        self,
        *,
        at_least: int | str | None = None,
        at_most: int | str | None = None,
        partition: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.at_least = at_least
        self.at_most = at_most
        self.partition = partition

    def condition(self) -> Condition:
        """What is waited for."""
        from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind

        least = _templates.number("at_least", self.at_least)
        most = _templates.number("at_most", self.at_most)
        if (least is None) == (most is None):
            raise ConfigError(f"task {self.task_id}: say how much lag: at_least or at_most, just one of them.")
        partition = _templates.word(self.partition)
        if least is not None:
            return Condition(ConditionKind.LAG_AT_LEAST, least, partition)
        return Condition(ConditionKind.LAG_AT_MOST, int(most or 0), partition)
