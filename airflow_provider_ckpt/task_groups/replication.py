"""``CkptReplicationTaskGroup``: a run as visible tasks, with the delivery policy's branches."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import TaskGroup, TriggerRule

from airflow_provider_ckpt.core.policy import Route
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators.base import Declaration
from airflow_provider_ckpt.operators.leaves import CkptDeadLettersOperator, CkptHoldOperator
from airflow_provider_ckpt.operators.plan import CkptPlanOperator
from airflow_provider_ckpt.operators.retry import CkptRetryOperator
from airflow_provider_ckpt.operators.route import CkptRouteOperator
from airflow_provider_ckpt.operators.settle import CkptSettleOperator
from airflow_provider_ckpt.operators.submit import CkptSubmitOperator

_TASKS = ("plan", "submit", "settle", "route", *Route)
_LEAF = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS


class CkptReplicationTaskGroup(TaskGroup):
    """The same run as :class:`CkptReplicateOperator`, as tasks::

        plan → submit → settle → route ─┬→ retry ─┬→ done
                                        └─────────┴→ dead_letters, hold

    ``submit`` is skipped where nothing is new, so that an empty run starts no Spark. ``route`` and ``retry`` branch
    over the same leaves. A task downstream of the group should have the trigger rule ``none_failed_min_one_success``,
    since a leaf that was not chosen is skipped.

    :param group_id: the group's id, and the prefix of its tasks' ids
    :param pipeline: path of a YAML file relative to the DAG file's folder, a dict, or a ``Pipeline`` (templated)
    :param ckpt_conn_id: the ledger's connection
    :param deferrable: whether ``retry`` waits in the triggerer between rounds; else as Airflow's ``default_deferrable``
    :param kwargs: further arguments of ``TaskGroup``
    """

    def __init__(
        self,
        group_id: str,
        *,
        pipeline: Declaration,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(group_id=group_id, **kwargs)
        here: dict[str, Any] = {"task_group": self, "dag": self.dag}
        shared: dict[str, Any] = {"pipeline": pipeline, "ckpt_conn_id": ckpt_conn_id, **here}
        ids: dict[str, str] = {name: self.child_id(name) for name in _TASKS}  # type: ignore[no-untyped-call]
        branches = {route: ids[route.value] for route in Route}
        routed = [ids["retry"], ids["route"]]
        waits = {} if deferrable is None else {"deferrable": deferrable}

        plan = CkptPlanOperator(task_id="plan", **shared)
        submit = CkptSubmitOperator(task_id="submit", after=[ids["plan"]], **shared)
        settle = CkptSettleOperator(
            task_id="settle", after=[ids["submit"], ids["plan"]], trigger_rule=TriggerRule.NONE_FAILED, **shared
        )
        route = CkptRouteOperator(task_id="route", after=[ids["settle"]], branches=branches, **shared)
        retry = CkptRetryOperator(task_id="retry", after=[ids["route"]], branches=branches, **waits, **shared)
        leaves = [
            EmptyOperator(task_id="done", trigger_rule=_LEAF, **here),
            CkptDeadLettersOperator(task_id="dead_letters", after=routed, trigger_rule=_LEAF, **shared),
            CkptHoldOperator(task_id="hold", after=routed, trigger_rule=_LEAF, **shared),
        ]
        plan >> submit >> settle >> route >> retry >> leaves
        route >> leaves
