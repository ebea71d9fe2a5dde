"""``CkptReplicationTaskGroup``: a run as visible tasks, with the delivery policy's branches."""

from __future__ import annotations

from inspect import signature
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import BaseOperator, TaskGroup, TriggerRule

from airflow_provider_ckpt.core.policy import Route
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.outcomes import CkptDeadLettersOperator, CkptHoldOperator, CkptSummaryOperator
from airflow_provider_ckpt.operators.plan import CkptPlanOperator
from airflow_provider_ckpt.operators.retry import CkptRetryOperator
from airflow_provider_ckpt.operators.route import CkptRouteOperator
from airflow_provider_ckpt.operators.settle import CkptSettleOperator
from airflow_provider_ckpt.operators.submit import CkptSubmitOperator

_TASKS = ("plan", "submit", "settle", "route", *Route)
_LEAF = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
_OF_GROUP = frozenset(signature(TaskGroup.__init__).parameters)
_OF_EACH_TASK = frozenset(
    {"self", "kwargs", "task_id", "dag", "task_group", "task_display_name", "do_xcom_push", "multiple_outputs"}
)
_OF_TASKS = frozenset(signature(BaseOperator.__init__).parameters) - _OF_EACH_TASK
_OF_FIRST = frozenset({"trigger_rule", "inlets"})
_OF_LAST = frozenset({"outlets"})


class CkptReplicationTaskGroup(TaskGroup):
    """The same run as :class:`CkptReplicateOperator`, as tasks::

        plan → submit → settle → route ─┬→ retry ─┬→ done
                                        └─────────┴→ dead_letters, hold ─→ summary

    ``submit`` is skipped where nothing is new, so that an empty run starts no Spark. ``route`` and ``retry`` branch
    over the same tasks. ``summary`` ends the group: it returns the run's summary, and a task downstream of the group
    runs after it, whatever branches were chosen, unless one of the group's tasks failed.

    :param group_id: the group's id, and the prefix of its tasks' ids
    :param pipeline: path of a YAML file relative to the DAG file's folder, a dict, or a ``Pipeline`` (templated)
    :param ckpt_conn_id: the ledger's connection; else what ``default_args`` say
    :param deferrable: whether ``retry`` waits in the triggerer between rounds; else as ``default_args`` or Airflow's
        ``default_deferrable`` say
    :param kwargs: further arguments of ``TaskGroup``, and of tasks: ``pool``, ``queue``, ``retries``,
        ``execution_timeout`` and so on reach every task, ``trigger_rule`` and ``inlets`` the first, ``outlets`` the
        last
    :raises TypeError: if an argument is neither the group's nor a task's
    """

    def __init__(
        self,
        group_id: str,
        *,
        pipeline: Declaration,
        ckpt_conn_id: str | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if unknown := sorted(kwargs.keys() - _OF_GROUP - _OF_TASKS):
            raise TypeError(f"CkptReplicationTaskGroup {group_id!r}: unknown arguments: {', '.join(unknown)}")
        of_tasks = {name: kwargs.pop(name) for name in sorted(kwargs.keys() - _OF_GROUP)}
        super().__init__(group_id=group_id, **kwargs)
        first, last = (
            {name: of_tasks.pop(name) for name in names & of_tasks.keys()} for names in (_OF_FIRST, _OF_LAST)
        )
        here: dict[str, Any] = {"task_group": self, "dag": self.dag, **of_tasks}
        shared: dict[str, Any] = {"pipeline": pipeline, **_given(ckpt_conn_id=ckpt_conn_id), **here}
        ids: dict[str, str] = {name: self.child_id(name) for name in _TASKS}  # type: ignore[no-untyped-call]
        branches = {route: ids[route.value] for route in Route}
        routed = [ids["retry"], ids["route"]]

        plan = CkptPlanOperator(task_id="plan", **first, **shared)
        submit = CkptSubmitOperator(task_id="submit", after=[ids["plan"]], **shared)
        settle = CkptSettleOperator(
            task_id="settle", after=[ids["submit"], ids["plan"]], trigger_rule=TriggerRule.NONE_FAILED, **shared
        )
        route = CkptRouteOperator(task_id="route", after=[ids["settle"]], branches=branches, **shared)
        retry = CkptRetryOperator(
            task_id="retry", after=[ids["route"]], branches=branches, **_given(deferrable=deferrable), **shared
        )
        leaves = [
            EmptyOperator(task_id="done", trigger_rule=_LEAF, **here),
            CkptDeadLettersOperator(task_id="dead_letters", after=routed, trigger_rule=_LEAF, **shared),
            CkptHoldOperator(task_id="hold", after=routed, trigger_rule=_LEAF, **shared),
        ]
        summary = CkptSummaryOperator(
            task_id="summary", after=routed, trigger_rule=TriggerRule.NONE_FAILED, **last, **shared
        )
        plan >> submit >> settle >> route >> retry >> leaves
        route >> leaves
        leaves >> summary


def _given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None; the others come from ``default_args`` then."""
    return {name: value for name, value in arguments.items() if value is not None}
