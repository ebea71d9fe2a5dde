"""``CkptLagSensor``: wait until a pipeline's lag has grown to a number of positions, or has fallen to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.base import DEFAULT_DEFERRABLE
from airflow_provider_ckpt.sensors.base import CkptSensor

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.observe.conditions import Condition


class CkptLagSensor(CkptSensor):
    """Wait until a pipeline's lag is at least ``at_least`` positions, or at most ``at_most``; exactly one is given.

    The lag is the distance between the checkpoint and the end of the source, which each check reads from the source.
    Positions are Kafka offsets, bytes of text files, rows of Parquet files, or values of a table's cursor. The lag of a
    table is not known before its first batch has a verdict; until then it counts as larger than any number.

    The task returns ``{"pipeline", "lag", "total", "not_begun"}``: the lag by source partition (None if not known), the
    sum of the known lags, and the partitions whose lag is not known.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator` (templated)
    :param at_least: wait until the lag is at least this many positions (templated); None if ``at_most`` is given
    :param at_most: wait until the lag is at most this many positions (templated); None if ``at_least`` is given
    :param partition: name of the only source partition to measure; by default the sum of all is measured (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker slot. By default as Airflow's ``[operators]
        default_deferrable``
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseSensorOperator``: ``poke_interval``, ``timeout``, ``soft_fail`` and so on
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "at_least", "at_most", "partition")

    def __init__(
        self,
        *,
        pipeline: Declaration,
        at_least: int | str | None = None,
        at_most: int | str | None = None,
        partition: str | None = None,
        deferrable: bool = DEFAULT_DEFERRABLE,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, deferrable=deferrable, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.at_least = at_least
        self.at_most = at_most
        self.partition = partition

    def condition(self) -> Condition:
        """Return the condition that the lag is at least ``at_least``, or at most ``at_most``, positions.

        :raises ConfigError: unless exactly one of the two is given, as a whole number
        """
        from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind

        least = _templates.whole_number("at_least", self.at_least)
        most = _templates.whole_number("at_most", self.at_most)
        if (least is None) == (most is None):
            raise ConfigError(f"task {self.task_id}: say how much lag: at_least or at_most, just one of them.")
        partition = _templates.optional_text(self.partition)
        if least is not None:
            return Condition(ConditionKind.LAG_AT_LEAST, least, partition)
        return Condition(ConditionKind.LAG_AT_MOST, int(most or 0), partition)
