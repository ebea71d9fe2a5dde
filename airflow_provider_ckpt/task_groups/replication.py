"""``CkptReplicationTaskGroup``: a replication run as separate tasks, with branches for retries and failed records."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import TaskGroup, TriggerRule

from airflow_provider_ckpt.core.routes import Route
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.outcomes import CkptDeadLettersOperator, CkptHoldOperator, CkptSummaryOperator
from airflow_provider_ckpt.operators.plan import CkptPlanOperator
from airflow_provider_ckpt.operators.retry import CkptRetryOperator
from airflow_provider_ckpt.operators.route import CkptRouteOperator
from airflow_provider_ckpt.operators.settle import CkptSettleOperator
from airflow_provider_ckpt.operators.submit import CkptSubmitOperator
from airflow_provider_ckpt.task_groups._arguments import split_arguments, without_none

_TASK_IDS = ("plan", "submit", "settle", "route", *Route)
_BRANCH_TRIGGER_RULE = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS


class CkptReplicationTaskGroup(TaskGroup):
    """Run the steps of :class:`CkptReplicateOperator` as separate tasks::

        plan → submit → settle → route ─┬→ retry ─┬→ done
                                        └─────────┴→ dead_letters, hold ─→ summary

    If there are no batches to send, ``submit`` is skipped and Spark is not started. ``route`` and ``retry`` choose
    among ``done``, ``dead_letters`` and ``hold``; ``route`` may also choose ``retry``. ``summary`` ends the group and
    returns the run's summary. A task downstream of the group runs whichever branches were chosen, unless a task of the
    group failed.

    :param group_id: id of the group, and prefix of its tasks' ids
    :param pipeline: declaration of the pipeline (templated): path of a YAML file relative to the DAG file's folder, a
        dict, or a ``Pipeline``
    :param ckpt_conn_id: Airflow connection of the ledger (templated); by default from ``default_args``
    :param deferrable: whether ``retry`` waits in the triggerer between rounds; by default from ``default_args``, or
        else Airflow's ``[operators] default_deferrable``
    :param kwargs: further arguments of ``TaskGroup``, or of the tasks: ``trigger_rule`` and ``inlets`` are passed to
        the first task, ``outlets`` to the last one, and all others, such as ``pool`` and ``retries``, to every task
    :raises TypeError: if an argument is neither one of ``TaskGroup`` nor of ``BaseOperator``
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
        given = split_arguments(type(self).__name__, group_id, kwargs)
        super().__init__(group_id=group_id, **given.of_group)
        arguments: dict[str, Any] = {"task_group": self, "dag": self.dag, **given.of_tasks}
        shared: dict[str, Any] = {"pipeline": pipeline, **without_none(ckpt_conn_id=ckpt_conn_id), **arguments}
        ids: dict[str, str] = {name: self.child_id(name) for name in _TASK_IDS}  # type: ignore[no-untyped-call]
        branches = {route: ids[route.value] for route in Route}
        routed = [ids["retry"], ids["route"]]

        plan = CkptPlanOperator(task_id="plan", **given.of_first, **shared)
        submit = CkptSubmitOperator(task_id="submit", after=[ids["plan"]], **shared)
        settle = CkptSettleOperator(
            task_id="settle", after=[ids["submit"], ids["plan"]], trigger_rule=TriggerRule.NONE_FAILED, **shared
        )
        route = CkptRouteOperator(task_id="route", after=[ids["settle"]], branches=branches, **shared)
        retry = CkptRetryOperator(
            task_id="retry", after=[ids["route"]], branches=branches, **without_none(deferrable=deferrable), **shared
        )
        leaves = [
            EmptyOperator(task_id="done", trigger_rule=_BRANCH_TRIGGER_RULE, **arguments),
            CkptDeadLettersOperator(task_id="dead_letters", after=routed, trigger_rule=_BRANCH_TRIGGER_RULE, **shared),
            CkptHoldOperator(task_id="hold", after=routed, trigger_rule=_BRANCH_TRIGGER_RULE, **shared),
        ]
        summary = CkptSummaryOperator(
            task_id="summary", after=routed, trigger_rule=TriggerRule.NONE_FAILED, **given.of_last, **shared
        )
        plan >> submit >> settle >> route >> retry >> leaves
        route >> leaves
        leaves >> summary
