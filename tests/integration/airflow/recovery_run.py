"""Run the tasks of a recovery DAG in the tests' process, and read the result from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from airflow.providers.common.compat.sdk import DownstreamTasksSkipped
from airflow.sdk import DAG, BaseOperator

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.dag_factories.recovery import recovery_dag
from airflow_provider_ckpt.ledger.types import ProposalRecord
from tests.integration.airflow.users import People

NOTHING = "nothing was proposed, since there was nothing to do or it was a dry run; nothing was changed"


class Chain:
    """One run of the recovery DAG: its tasks in turn, as far as they run in this process.

    :param people: whose ledger it works on
    :param user: who triggered it
    :param pipelines: names that can be chosen, or a folder of declarations
    """

    map_index = -1

    def __init__(
        self, people: People, user: str = "ada", pipelines: Sequence[str] | Path = ("people",), **params: Any
    ) -> None:
        self.ledger = people.ledger
        self.dag: DAG = recovery_dag("care", pipelines=pipelines)
        self.params = {**self.dag.params.dump(), "reason": "why not", **params}
        self.run = SimpleNamespace(dag_id="care", run_id="one", triggering_user_name=user)
        self.handed: dict[str, Any] = {}

    def task(self, task_id: str) -> tuple[Any, Any]:
        """A task as Airflow has rendered it, and its context."""
        task = copy(cast("BaseOperator", self.dag.get_task(task_id)))
        context: Any = {"dag_run": self.run, "params": self.params, "ti": self, "task": task}
        task.render_template_fields(context)
        return task, context

    def step(self, task_id: str) -> Any:
        """Run one task; what it returns."""
        task, context = self.task(task_id)
        return task.execute(context)

    def preview(self) -> Any:
        return self.step("preview")

    def ask(self) -> ProposalRecord:
        """Return the question of the approval's task."""
        return self.ledger.proposal_to_answer("care/one/preview")

    def hear(self, asked: ProposalRecord, option: str = "Approve", user: str | None = "oscar") -> None:
        """Resume the approval's task with Airflow's record of an answer."""
        task, context = self.task("approve")
        event = {
            "chosen_options": [option],
            "params_input": {},
            "responded_at": datetime.now(UTC),
            "responded_by_user": user and {"id": user, "name": user},
        }
        with suppress(DownstreamTasksSkipped):
            task.execute_complete(context, event, proposal=asked.proposal.id, digest=asked.digest)

    def answer(self, user: str = "oscar") -> Any:
        """Approve as that user, and return the result of the task that carries the action out."""
        self.hear(self.ask(), user=user)
        return self.step("carry_out")

    def xcom_push(self, key: str, value: Any) -> None:
        self.handed[key] = value


def refresh(people: People) -> dict[str, Any]:
    return people.ledger.status("people")


def events(people: People) -> list[dict[str, Any]]:
    return people.ledger.events("people", 1000)


def hold(people: People, *numbers: int) -> list[str]:
    """Hold batches; their names."""
    found = sorted(
        batch.key for batch in people.ledger.partitions("people")[people.partition].partition.batches.values()
    )
    keys = tuple(key for key in found if key.seq in numbers)
    people.ledger.action("people", Action(ActionKind.HOLD, keys), actor="test")
    return [str(key) for key in keys]
