"""``CkptDeadLettersSensor`` and ``CkptHeldBatchesSensor``: wait until a pipeline needs a user's attention."""

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


class CkptDeadLettersSensor(CkptSensor):
    """Wait until a pipeline has dead letters that were neither replayed nor discarded.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator` (templated)
    :param at_least: number of dead letters to wait for, at least 1 (templated)
    :param error_types: count only dead letters of these error types; all if empty (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker slot. By default as Airflow's ``[operators]
        default_deferrable``
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseSensorOperator``: ``poke_interval``, ``timeout``, ``soft_fail`` and so on
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "at_least", "error_types")

    def __init__(
        self,
        *,
        pipeline: Declaration,
        at_least: int | str = 1,
        error_types: Sequence[str] | str = (),
        deferrable: bool = DEFAULT_DEFERRABLE,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, deferrable=deferrable, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.at_least = at_least
        self.error_types = error_types

    def condition(self) -> Condition:
        """Return the condition that ``at_least`` dead letters of the given types are neither replayed nor discarded."""
        from airflow_provider_ckpt.replication.actions.parse_arguments import parse_error_types
        from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind

        types = parse_error_types(_templates.text_tuple("error_types", self.error_types))
        return Condition(ConditionKind.DEAD_LETTERS, _positive_number(self.at_least), error_types=tuple(sorted(types)))


class CkptHeldBatchesSensor(CkptSensor):
    """Wait until a pipeline has held batches, which block the checkpoint until a user releases or skips them.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator` (templated)
    :param at_least: number of held batches to wait for, at least 1 (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker slot. By default as Airflow's ``[operators]
        default_deferrable``
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseSensorOperator``: ``poke_interval``, ``timeout``, ``soft_fail`` and so on
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "at_least")

    def __init__(
        self,
        *,
        pipeline: Declaration,
        at_least: int | str = 1,
        deferrable: bool = DEFAULT_DEFERRABLE,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, deferrable=deferrable, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.at_least = at_least

    def condition(self) -> Condition:
        """Return the condition that the pipeline has ``at_least`` held batches."""
        from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind

        return Condition(ConditionKind.HELD, _positive_number(self.at_least))


def _positive_number(value: object) -> int:
    """Return the parameter ``at_least`` of a sensor as a whole number.

    :param value: value of the parameter, or the text that a template rendered
    :raises ConfigError: if the value is less than 1 or not a whole number
    """
    found = _templates.whole_number("at_least", value)
    if found is None or found < 1:
        raise ConfigError(f"at_least is {value!r}; it must be a whole number from 1.")
    return found
