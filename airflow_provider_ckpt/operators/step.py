"""A task that carries a run on: it takes epoch and summary from the task before, and hands both to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.core.policy import Route, route
from airflow_provider_ckpt.operators.base import CkptOperator, hand_over

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.run import Run, Setup


class CkptStepOperator(CkptOperator):
    """Base of the task group's later tasks.

    What travels by XCom is ``{"epoch": int, "planned": int, "summary": {...}}``: numbers and names, no secret.

    :param after: ids of the tasks that may have carried the run so far, the latest first; a skipped one is passed over
    """

    def __init__(self, *, after: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.after = tuple(after)

    def previous(self, context: Context) -> dict[str, Any]:
        """What the latest task before this one handed over; of a run that was cleared, the newest epoch's.

        :raises AirflowFailException: if none did
        """
        handed = [context["ti"].xcom_pull(task_ids=task_id) for task_id in self.after]
        found = [dict(item) for item in handed if item is not None]
        if not found:
            raise AirflowFailException(f"None of {', '.join(self.after)} handed a run over; clear the first of them.")
        return max(found, key=lambda item: int(item["epoch"]))

    @contextmanager
    def carry_on(self, context: Context, before: dict[str, Any]) -> Iterator[tuple[Setup, Run]]:
        """The run, under the lease that ``plan`` acquired."""
        from airflow_provider_ckpt.replication.run import attach

        with self.setup_run(context) as setup, attach(setup, before["epoch"]) as run:
            yield setup, run

    def report(self, context: Context, run: Run, before: dict[str, Any], *, release: bool = False) -> dict[str, Any]:
        """What this task hands over: the run's epoch, and the summary of all its tasks so far; stored already.

        :param release: whether to let go of the lease
        """
        from airflow_provider_ckpt.replication.summary import RunSummary

        now = run.finish(release=release)
        summary = RunSummary.from_json(before["summary"]).merge(now)
        summary.route = [
            leaf.value
            for leaf in route(
                dead_lettered=summary.records.dead_lettered,
                waiting=int(Route.RETRY in now.route),
                held=int(Route.HOLD in now.route),
            )
        ]
        return hand_over(context, {"epoch": run.epoch, "planned": before["planned"], "summary": summary.to_json()})
