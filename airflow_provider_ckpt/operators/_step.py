"""Base class of the task group's tasks after ``plan``, which pass the state of the run from task to task by XCom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_ckpt.core.errors import StaleEpochError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.base import CkptOperator, push_return_value

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.run.run import Run
    from airflow_provider_ckpt.replication.setup import PipelineContext


class CkptStepOperator(CkptOperator):
    """Base of the task group's tasks after ``plan``.

    Each task passes the state of the run to the next task by XCom, as ``{"epoch": int, "try_number": int, "planned":
    int, "summary": {...}}``: epoch of the lease, try number of the task that acquired the lease, number of planned
    batches, and summary so far. It contains numbers and names, and no secret.

    :param pipeline: declaration of the pipeline (templated), see :class:`CkptOperator`
    :param after: ids of the tasks before this one that return the state of the run, the latest first; tasks that were
        skipped are ignored
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    shares_lease = True

    def __init__(
        self, *, pipeline: Declaration, after: Sequence[str], ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any
    ) -> None:
        super().__init__(pipeline=pipeline, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.after = tuple(after)

    def previous_state(self, context: Context) -> dict[str, Any]:
        """Return the newest state of the run that one of the tasks before this one returned.

        The newest state is that with the highest epoch (epochs differ if tasks were cleared). If several states have
        this epoch, it is the state of the latest task.

        :param context: the task's context
        :raises AirflowFailException: if none of the tasks returned a state
        """
        found = self.previous_states(context)
        if not found:
            raise AirflowFailException(
                f"None of the tasks {', '.join(self.after)} returned the state of a run; clear the first of them."
            )
        return newest_state(found)

    def previous_states(self, context: Context) -> list[dict[str, Any]]:
        """Return the states of the run that earlier tasks returned by XCom, that of the latest task first.

        :param context: the task's context
        """
        ti = context["ti"]
        # In a mapped task group each instance has a run of its own; the index selects that of this instance.
        returned = [ti.xcom_pull(task_ids=task_id, map_indexes=ti.map_index) for task_id in self.after]
        return [dict(item) for item in returned if item is not None]

    @contextmanager
    def continue_run(self, context: Context, state: dict[str, Any]) -> Iterator[tuple[PipelineContext, Run]]:
        """Continue the run under the lease that ``plan`` acquired; yield the pipeline's setup and the run.

        The run continues under a new lease in three cases:

        * This task is a retry, or has a higher try number than the task that acquired the lease. An earlier try of this
          task may then still be running; it releases the old lease when Airflow kills it.
        * The lease was released or taken over, and this is not the task's first try.
        * Attempts of the lease's epoch are still open, see :func:`.attach_or_reacquire`.

        :param context: the task's context
        :param state: state of the run, from :meth:`previous_state`
        :raises AirflowFailException: if another run has taken over the lease, and this is the task's first try
        """
        from airflow_provider_ckpt.replication.run.acquire import acquire
        from airflow_provider_ckpt.replication.run.attach_or_reacquire import attach_or_reacquire

        with self.setup_run(context) as setup:
            try_number = context["ti"].try_number
            try:
                if _is_retry(context) or try_number > state["try_number"]:
                    continued = acquire(setup)
                else:
                    continued = attach_or_reacquire(setup, state["epoch"])
            except StaleEpochError:
                if try_number == 1:
                    raise
                continued = acquire(setup)
            with continued as run:
                yield setup, run

    def push_state(self, context: Context, run: Run, state: dict[str, Any], *, release: bool = False) -> dict[str, Any]:
        """End this task's part of a run, and return the state that it pushes to XCom for the next task of the group.

        :class:`CkptStepOperator` describes the state; its summary covers the parts of all tasks so far.

        :param context: the task's context
        :param run: the run, as this task continued it
        :param state: the state that the task before this one pushed
        :param release: whether to release the lease, since no further task of the group continues the run
        """
        from airflow_provider_ckpt.replication.run.summary import RunSummary

        summary = RunSummary.from_json(state["summary"]).merge(run.finish(release=release))
        lease = {"epoch": run.epoch, "try_number": state["try_number"]}
        if run.epoch != state["epoch"]:
            lease["try_number"] = context["ti"].try_number
        return push_return_value(context, {**lease, "planned": state["planned"], "summary": summary.to_json()})


def _is_retry(context: Context) -> bool:
    """Return whether this is not the first try of the task since Airflow last cleared it, or since it was created.

    When a task is cleared, Airflow sets ``max_tries`` to the number of tries so far plus ``retries``.

    :param context: the task's context
    """
    ti = context["ti"]
    return int(ti.try_number) > int(ti.max_tries) - int(context["task"].retries or 0) + 1


def newest_state(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the state with the highest epoch; if several have that epoch, the first of them in the list.

    :param states: states of the run, as tasks returned them
    """
    return max(states, key=lambda item: int(item["epoch"]))
