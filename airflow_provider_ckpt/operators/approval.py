"""``CkptApprovalOperator``: asks a person whether a previewed act may be carried out, and keeps the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

ANSWER = "answer"
"""The XCom key of the answer."""


class CkptApprovalOperator(ApprovalOperator):
    """Airflow's own approval, which keeps nothing of a rejection; here ``{"approved", "user"}`` is kept of any answer.

    ``user`` is None where nobody answered in time and the default was taken.

    :param preview: id of the task whose ``subject`` and ``body`` are shown
    """

    def __init__(self, *, preview: str, **kwargs: Any) -> None:
        pull = f"ti.xcom_pull(task_ids='{preview}')"
        super().__init__(subject=f"{{{{ {pull}['subject'] }}}}", body=f"{{{{ {pull}['body'] }}}}", **kwargs)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after the answer."""
        if "error" not in event:
            user = event["responded_by_user"]
            answer = {
                "approved": event["chosen_options"] == [self.APPROVE],
                "user": (user["name"] or user["id"]) if user else None,
            }
            context["ti"].xcom_push(key=ANSWER, value=answer)
        return super().execute_complete(context, event)
