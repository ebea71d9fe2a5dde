"""``CkptCheckpointSensor``: wait until a pipeline's checkpoint has reached a position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.base import DEFAULT_DEFERRABLE
from airflow_provider_ckpt.sensors.base import CkptSensor

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.observe.conditions import Condition


class CkptCheckpointSensor(CkptSensor):
    """Wait until the checkpoint has reached a position, so that all records before this position have a verdict.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator` (templated)
    :param position: position that every source partition must reach; or a dict of positions by source partition, if
        only these partitions count (templated)
    :param partition: name of the only source partition that must reach ``position``; by default all must reach it
        (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker slot. By default as Airflow's ``[operators]
        default_deferrable``
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseSensorOperator``: ``poke_interval``, ``timeout``, ``soft_fail`` and so on
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "position", "partition")

    def __init__(
        self,
        *,
        pipeline: Declaration,
        position: int | str | Mapping[str, int | str],
        partition: str | None = None,
        deferrable: bool = DEFAULT_DEFERRABLE,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, deferrable=deferrable, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.position = position
        self.partition = partition

    def condition(self) -> Condition:
        """Return the condition that the checkpoint of each chosen source partition has reached its position.

        :raises ConfigError: if a position is empty or not a whole number
        """
        from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind

        if isinstance(self.position, Mapping):
            positions = {name: _required_number(f"position of {name}", value) for name, value in self.position.items()}
            return Condition(ConditionKind.CHECKPOINT, positions=positions)
        number = _required_number("position", self.position)
        return Condition(ConditionKind.CHECKPOINT, number, _templates.optional_text(self.partition))


def _required_number(name: str, value: object) -> int:
    """Return a parameter of a sensor as a whole number.

    :param name: name of the parameter, for the error message
    :param value: value of the parameter, or the text that a template rendered
    :raises ConfigError: if the value is empty or not a whole number
    """
    found = _templates.whole_number(name, value)
    if found is None:
        raise ConfigError(f"{name} is empty; it must be a whole number.")
    return found
