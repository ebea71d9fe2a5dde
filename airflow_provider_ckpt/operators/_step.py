"""A task that carries a run on: it takes epoch and summary from the task before, and hands both to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.core.errors import StaleEpochError
from airflow_provider_ckpt.operators.base import CkptOperator, hand_over

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.run.run import Run
    from airflow_provider_ckpt.replication.setup import Setup


class CkptStepOperator(CkptOperator):
    """Base of the task group's later tasks.

    What travels by XCom is ``{"epoch": int, "planned": int, "summary": {...}}``: numbers and names, no secret.

    :param after: ids of the tasks that may have carried the run so far, the latest first; a skipped one is passed over
    """

    shares_lease = True

    def __init__(self, *, after: Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.after = tuple(after)

    def previous(self, context: Context) -> dict[str, Any]:
        """What the latest task before this one handed over; of a run that was cleared, the newest epoch's.

        :raises AirflowFailException: if none did
        """
        found = self.handed_over(context)
        if not found:
            raise AirflowFailException(f"None of {', '.join(self.after)} handed a run over; clear the first of them.")
        return newest(found)

    def handed_over(self, context: Context) -> list[dict[str, Any]]:
        """Return the results that the tasks before this one handed over, the latest first."""
        ti = context["ti"]
        # Inside an expanded task group each member has a run of its own; without the index they would be mixed up.
        handed = [ti.xcom_pull(task_ids=task_id, map_indexes=ti.map_index) for task_id in self.after]
        return [dict(item) for item in handed if item is not None]

    @contextmanager
    def carry_on(self, context: Context, before: dict[str, Any]) -> Iterator[tuple[Setup, Run]]:
        """The run, under the lease that ``plan`` acquired.

        A task that runs once more, retried or cleared, finds that lease let go or taken: it acquires anew.
        """
        from airflow_provider_ckpt.replication.run.acquire import acquire, attach

        with self.setup_run(context) as setup:
            try:
                carried = attach(setup, before["epoch"])
            except StaleEpochError:
                if context["ti"].try_number == 1:
                    raise
                carried = acquire(setup)
            with carried as run:
                yield setup, run

    def report(self, context: Context, run: Run, before: dict[str, Any], *, release: bool = False) -> dict[str, Any]:
        """What this task hands over: the run's epoch, and the summary of all its tasks so far; stored already.

        :param release: whether to let go of the lease
        """
        from airflow_provider_ckpt.replication.run.summary import RunSummary

        summary = RunSummary.from_json(before["summary"]).merge(run.finish(release=release))
        return hand_over(context, {"epoch": run.epoch, "planned": before["planned"], "summary": summary.to_json()})


def newest(handed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The newest epoch's of what several tasks handed over; of one epoch, the first."""
    return max(handed, key=lambda item: int(item["epoch"]))
