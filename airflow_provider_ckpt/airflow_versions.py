"""Functions that behave alike in all supported versions of Airflow, although Airflow's own functions differ.

Names that are in different modules in different versions are imported from ``airflow.providers.common.compat.sdk``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from airflow.providers.standard.operators.hitl import HITLOperator
    from airflow.sdk import Asset, Context
    from airflow.sdk.execution_time.comms import AssetEventResult


def initialize_stats() -> None:
    """Set up Airflow's ``Stats`` in a process that is not an Airflow task; in a task, Airflow has already done so.

    With Airflow 3.1 this function does nothing, since ``Stats`` sets itself up at its first use there.
    """
    from airflow import __version__
    from airflow.providers.common.compat.sdk import Stats

    if __version__.startswith("3.1."):
        return
    from airflow.sdk.observability.metrics import stats_utils

    stats: Any = Stats
    factory: Any = stats_utils.get_stats_factory
    if __version__.startswith("3.2."):
        stats.initialize(factory=factory(stats))
    else:  # the metrics of this provider have no legacy names
        stats.initialize(factory=factory(), export_legacy_names=False)


def newest_event(asset: Asset) -> AssetEventResult | None:
    """Return an asset's newest event; None if the asset has no event. To be called inside a task only.

    Airflow 3.1 can only return all events of an asset, which takes longer.

    :param asset: the asset
    """
    from airflow.sdk.execution_time.context import InletEventsAccessors

    found: Any = InletEventsAccessors([asset])[asset]
    if isinstance(found, list):
        return max(found, key=lambda event: event.timestamp, default=None)
    return next(iter(found.ascending(False).limit(1)), None)


def wait_for_answer(operator: HITLOperator, context: Context, kwargs: Mapping[str, str]) -> NoReturn:
    """Suspend a task that has asked users a question, by raising the exception that Airflow expects for this.

    Airflow calls the operator's ``execute_complete`` once a user has answered. Since Airflow 3.3 the scheduler waits
    for the answer. In older versions a trigger waits, so a triggerer must be running.

    :param operator: the operator, whose question Airflow shows already
    :param context: the task's context
    :param kwargs: further arguments of ``execute_complete``
    """
    try:
        from airflow.sdk.exceptions import TaskAwaitingInput
    except ImportError:
        pass
    else:
        raise TaskAwaitingInput(method_name="execute_complete", kwargs=dict(kwargs), timeout=operator.response_timeout)
    from airflow.providers.standard.triggers.hitl import HITLTrigger
    from airflow.sdk.timezone import utcnow

    operator.log.info("Airflow needs a triggerer to notice the answer, because it is older than 3.3")
    trigger = HITLTrigger(
        ti_id=context["ti"].id,
        options=operator.options,
        defaults=operator.defaults,
        params=operator.serialized_params,
        multiple=operator.multiple,
        timeout_datetime=utcnow() + operator.response_timeout if operator.response_timeout else None,
    )
    operator.defer(trigger=trigger, method_name="execute_complete", kwargs=dict(kwargs))
