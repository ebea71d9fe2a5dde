"""``CkptApprovalOperator``: asks a person whether what was proposed may be carried out, and stores the answer.

Nothing here rests on an XCom. The question comes from the ledger. Who answered, and what, comes from the record that
Airflow keeps of the answer and hands to the task as it resumes; only an answer writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput
from airflow.sdk.timezone import utcnow

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger
from airflow_provider_ckpt.operators._origin import origin_of
from airflow_provider_ckpt.operators.base import airflow_error

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload

    from airflow_provider_ckpt.ledger.types import ProposalRecord


class CkptApprovalOperator(ApprovalOperator):
    """Ask a person about the proposal of :class:`CkptPreviewOperator`, and store the answer in the ledger.

    On *Reject*, or without an answer in time, the tasks that follow directly are skipped.

    :param preview: id of the preview's task
    :param ckpt_conn_id: the ledger's connection
    :param kwargs: further arguments of ``ApprovalOperator``: ``assigned_users``, ``response_timeout`` and so on
    """

    template_fields = ("ckpt_conn_id",)

    def __init__(self, *, preview: str, ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(subject="", **kwargs)
        self.preview = preview
        self.ckpt_conn_id = ckpt_conn_id

    def execute(self, context: Context) -> NoReturn:
        """Ask, and wait without a worker.

        :raises AirflowFailException: if there is nothing that can be approved
        """
        try:
            with open_ledger(self.ckpt_conn_id) as ledger:
                proposed = ledger.ask(origin_of(context, self.preview))
        except CkptError as error:
            raise airflow_error(error) from error
        self.subject, self.body = proposed.subject, proposed.body
        self._show(context, proposed)
        deadline = utcnow() + self.response_timeout if self.response_timeout else None
        self.hitl_summary_extra["timeout_datetime"] = deadline.isoformat() if deadline else None
        self.log.info("Proposal %s waits for an answer", proposed.proposal.id)
        for notifier in self.notifiers:
            notifier(context)
        raise TaskAwaitingInput(
            method_name="execute_complete",
            kwargs={"proposal": proposed.proposal.id, "digest": proposed.digest},
            timeout=self.response_timeout,
        )

    def execute_complete(
        self, context: Context, event: dict[str, Any], proposal: str | None = None, digest: str | None = None
    ) -> Any:
        """Store the answer.

        :param event: Airflow's record of the answer
        :param proposal: id of the proposal that the question showed
        :param digest: its digest
        :raises AirflowFailException: if the proposal cannot be approved any more
        """
        if "error" not in event and proposal is not None and digest is not None:
            user = event["responded_by_user"]
            who = f"airflow:{user['name'] or user['id']}" if user else None
            approved = event["chosen_options"] == [self.APPROVE]
            try:
                with open_ledger(self.ckpt_conn_id) as ledger:
                    ledger.answer(proposal, digest, approved=approved, who=who)
            except CkptError as error:
                raise airflow_error(error) from error
        return super().execute_complete(context, event)

    def _show(self, context: Context, proposed: ProposalRecord) -> None:
        """Have Airflow show the question; make sure that it does not go on showing another one.

        Of a task that is cleared Airflow keeps the question that it has asked before, whatever is asked now.
        """
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        question = CreateHITLDetailPayload.model_validate(
            {
                "ti_id": context["ti"].id,
                "options": self.options,
                "subject": proposed.subject,
                "body": proposed.body,
                "defaults": self.defaults,
                "params": self.serialized_params,
                "assigned_users": self.assigned_users or [],
            }
        )
        shown: Any = SUPERVISOR_COMMS.send(question)
        names = ("subject", "body", "options", "defaults")
        stale = [name for name in names if getattr(shown, name) != getattr(question, name)]
        if _ids(shown) != _ids(question):
            stale.append("assigned_users")
        if stale:
            raise AirflowFailException(
                f"Airflow goes on showing the question that this task asked before (it differs in {', '.join(stale)}), "
                f"not proposal {proposed.proposal.id}. Nothing was changed. Trigger the DAG anew."
            )


def _ids(question: CreateHITLDetailPayload) -> set[str]:
    """Return the ids of the users who may answer a question."""
    return {user.id for user in question.assigned_users or ()}
