"""``CkptApprovalOperator``: ask a user to approve or reject a proposed action, and store the answer in the ledger.

For safety the operator uses no XCom, since any task of the DAG run can write one. It takes the question from the
ledger. It takes the answer, and the user who gave it, from Airflow's own record of the response, which tasks cannot
write.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.operators.hitl import ApprovalOperator

from airflow_provider_ckpt.airflow_versions import wait_for_answer
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger
from airflow_provider_ckpt.operators._origin import proposal_origin
from airflow_provider_ckpt.operators._task_failure import airflow_error

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
    from airflow.sdk.execution_time.hitl import HITLUser

    from airflow_provider_ckpt.ledger.types import ProposalRecord


class CkptApprovalOperator(ApprovalOperator):
    """Ask a user to approve a proposed action, and store the answer in the ledger.

    A :class:`CkptPreviewOperator` task has proposed the action. On *Reject*, or without an answer in time, the directly
    following tasks are skipped.

    :param preview: id of the :class:`CkptPreviewOperator` task
    :param assigned_users: users who may answer, as ``{"id": …, "name": …}``; by default any user who may edit the DAG
        run
    :param response_timeout: longest time to wait for an answer; None waits without limit
    :param defaults: answer that is assumed after ``response_timeout``: ``APPROVE`` or ``REJECT`` of this class
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``ApprovalOperator``, such as ``notifiers``
    """

    template_fields = ("ckpt_conn_id",)

    def __init__(
        self,
        *,
        preview: str,
        assigned_users: HITLUser | list[HITLUser] | None = None,
        response_timeout: timedelta | None = None,
        defaults: str | list[str] | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            subject="", assigned_users=assigned_users, response_timeout=response_timeout, defaults=defaults, **kwargs
        )
        self.preview = preview
        self.ckpt_conn_id = ckpt_conn_id

    def execute(self, context: Context) -> NoReturn:
        """Show the newest proposal of the preview task to users, and defer until one of them answers.

        :param context: the task's context
        :raises AirflowFailException: if the ledger has no proposal of that task that can be approved
        """
        try:
            with open_ledger(self.ckpt_conn_id) as ledger:
                proposed = ledger.proposal_to_answer(proposal_origin(context, self.preview))
        except CkptError as error:
            raise airflow_error(error) from error
        self.subject, self.body = proposed.subject, proposed.body
        self._show(context, proposed)
        self.log.info("Proposal %s waits for an answer", proposed.proposal.id)
        for notifier in self.notifiers:
            notifier(context)
        wait_for_answer(self, context, {"proposal": proposed.proposal.id, "digest": proposed.digest})

    def execute_complete(
        self, context: Context, event: dict[str, Any], proposal: str | None = None, digest: str | None = None
    ) -> Any:
        """Store the user's answer in the ledger; then skip the following tasks unless the answer is *Approve*.

        :param context: the task's context
        :param event: Airflow's record of the answer
        :param proposal: id of the proposal that the question showed; None if not known, then no answer is stored
        :param digest: digest of that proposal; None if not known, then no answer is stored
        :return: the result of ``ApprovalOperator.execute_complete``
        :raises AirflowFailException: if the proposal can no longer be approved
        """
        if "error" not in event and proposal is not None and digest is not None:
            user = event["responded_by_user"]
            actor = f"airflow:{user['name'] or user['id']}" if user else None
            approved = event["chosen_options"] == [self.APPROVE]
            try:
                with open_ledger(self.ckpt_conn_id) as ledger:
                    ledger.answer(proposal, digest, approved=approved, actor=actor)
            except CkptError as error:
                raise airflow_error(error) from error
        return super().execute_complete(context, event)

    def _show(self, context: Context, proposed: ProposalRecord) -> None:
        """Have Airflow show a proposal to users as a question; raise an error if it keeps showing an earlier question.

        When a task is cleared, Airflow keeps its earlier question and ignores a new one.

        :param context: the task's context
        :param proposed: the proposal, with subject and body of the question
        :raises AirflowFailException: if Airflow shows an earlier question
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
        stored: Any = SUPERVISOR_COMMS.send(question)
        names = ("subject", "body", "options", "defaults")
        stale = [name for name in names if getattr(stored, name) != getattr(question, name)]
        if _user_ids(stored) != _user_ids(question):
            stale.append("assigned_users")
        if stale:
            raise AirflowFailException(
                f"Airflow still shows the question that this task asked earlier (it differs in {', '.join(stale)}), "
                f"not proposal {proposed.proposal.id}. Nothing was changed. Trigger a new DAG run."
            )


def _user_ids(question: CreateHITLDetailPayload) -> set[str]:
    """Return the ids of the users who may answer a question."""
    return {user.id for user in question.assigned_users or ()}
