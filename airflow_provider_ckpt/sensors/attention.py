"""``CkptDeadLettersSensor`` and ``CkptHeldBatchesSensor``: wait until a pipeline needs a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.sensors.base import CkptSensor

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.observe.conditions import Condition


class CkptDeadLettersSensor(CkptSensor):
    """Wait until dead letters are there that were neither replayed nor discarded.

    :param at_least: how many of them
    :param error_types: of these error types alone
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "at_least", "error_types")

    def __init__(self, *, at_least: int | str = 1, error_types: Sequence[str] | str = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.at_least = at_least
        self.error_types = error_types

    def condition(self) -> Condition:
        """What is waited for."""
        from airflow_provider_ckpt.replication.actions.actions import error_types
        from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind

        types = error_types(_templates.texts("error_types", self.error_types))
        return Condition(ConditionKind.DEAD_LETTERS, _from_one(self.at_least), error_types=tuple(sorted(types)))


class CkptHeldBatchesSensor(CkptSensor):
    """Wait until batches are held: the checkpoint waits for them, and a person must decide.

    :param at_least: how many of them
    """

    template_fields: Sequence[str] = (*CkptSensor.template_fields, "at_least")

    def __init__(self, *, at_least: int | str = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.at_least = at_least

    def condition(self) -> Condition:
        """What is waited for."""
        from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind

        return Condition(ConditionKind.HELD, _from_one(self.at_least))


def _from_one(value: object) -> int:
    found = _templates.number("at_least", value)
    if found is None or found < 1:
        raise ConfigError(f"at_least is {value!r}; it must be a whole number from 1.")
    return found
