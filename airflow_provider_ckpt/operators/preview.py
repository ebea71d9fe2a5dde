"""``CkptPreviewOperator``: compute what an action would change in a pipeline, and propose it for approval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import SkipMixin

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActionOperator
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators._origin import proposal_origin
from airflow_provider_ckpt.operators.base import push_return_value

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext
    from airflow_provider_ckpt.replication.actions.proposals import ActionRequest

DEFAULT_VALIDITY = timedelta(days=7)
"""Default time for which a proposal can be approved and carried out."""


class CkptPreviewOperator(CkptActionOperator, SkipMixin):
    """Compute the action that a user requests, preview its effect, and store it in the ledger as a proposal.

    The pipeline itself is not changed. :class:`CkptApprovalOperator` and :class:`CkptCarryOutOperator` read the
    proposal from the ledger. A proposal can be carried out once. It replaces an earlier proposal of this task in the
    same DAG run, which becomes void. If there is nothing to do, or with ``dry_run``, nothing is proposed and the
    directly following tasks are skipped.

    The task returns the result document of a dry run with four more keys: ``asks`` (whether a user is asked for
    approval), ``proposal`` (id of the proposal, or None), ``subject`` and ``body`` (title and text of the question).
    All parameters but ``declarations``, ``valid_for`` and ``kwargs`` are templated; an empty value counts as left out.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param action: name of the action: ``recover``, ``rewind``, ``replay_dead_letters``, ``release``, ``skip``,
        ``force_stop``, ``resume``, ``resend_to_sink``, ``keep_sink``, ``move``, ``adopt`` or ``accept_schema``
    :param partition: for rewind and resend_to_sink: name of the source partition
    :param to_position: for rewind and resend_to_sink: first position to read again
    :param to_time: for rewind: time (ISO 8601); the pipeline returns to the checkpoint that it had at this time
    :param batches: for release, skip and replay_dead_letters: batches (``partition#seq``); for skip at least one, for
        the others empty means all
    :param error_types: for replay_dead_letters: replay only dead letters of these error types
    :param stop_at: for replay_dead_letters: largest number of dead letters to replay; by default all
    :param ledger_id: for adopt: id of the ledger whose receipts the sink holds
    :param declarations: folder of YAML declarations (not templated), in which a pipeline is looked up by its name if
        the ledger does not know it or no run has stored its declaration; only adopt acts on an unknown pipeline
    :param valid_for: time for which the proposal can be approved and carried out
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only preview the action, and propose nothing
    :param actor: actor that the audit log names instead of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    template_fields: Sequence[str] = (
        *CkptActionOperator.template_fields,
        "action",
        "partition",
        "to_position",
        "to_time",
        "batches",
        "error_types",
        "stop_at",
        "ledger_id",
    )
    inherits_from_skipmixin = True
    needs_reason = True

    def __init__(
        self,
        *,
        pipeline: Declaration,
        action: str,
        partition: str | None = None,
        to_position: int | str | None = None,
        to_time: str | None = None,
        batches: Sequence[str] | str = (),
        error_types: Sequence[str] | str = (),
        stop_at: int | str | None = None,
        ledger_id: str | None = None,
        declarations: Path | None = None,
        valid_for: timedelta = DEFAULT_VALIDITY,
        reason: str | None = None,
        dry_run: bool | str = False,
        actor: str | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            pipeline=pipeline, reason=reason, dry_run=dry_run, actor=actor, ckpt_conn_id=ckpt_conn_id, **kwargs
        )
        self.action = action
        self.partition = partition
        self.to_position = to_position
        self.to_time = to_time
        self.batches = batches
        self.error_types = error_types
        self.stop_at = stop_at
        self.ledger_id = ledger_id
        self.declarations = declarations
        self.valid_for = valid_for
        self._origin = ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Void earlier proposals of this task, propose the action, and return the preview.

        :param context: the task's context
        :return: result document of a dry run, with the keys ``asks``, ``proposal``, ``subject`` and ``body``
        :raises AirflowFailException: if the action is not possible in the pipeline's state; nothing is proposed then
        """
        self._origin = proposal_origin(context, self.task_id)
        with self.translate_errors(), open_ledger(self.ckpt_conn_id) as ledger:
            ledger.void_proposals(self._origin)
        found = push_return_value(context, super().execute(context))
        if not found["asks"]:
            self.skip(ti=context["ti"], tasks=self.get_direct_relatives(upstream=False))
        return found

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Compute the requested action, store it in the ledger as a proposal, and return the preview.

        Nothing is stored in a dry run, or if there is nothing to do.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """
        from airflow_provider_ckpt.core.proposals import Proposal
        from airflow_provider_ckpt.operators._markdown import approval_body
        from airflow_provider_ckpt.replication.actions.proposals import preview, propose

        proposed = propose(context, self._request())
        action = proposed.action
        if action is None:
            return self._empty_preview(context, proposed.open)
        document = {**preview(context, action), **proposed.open}
        proposal = Proposal.new(
            context.pipeline, action, origin=self._origin, actor=context.actor, reason=context.reason
        )
        subject = f"{self.action.replace('_', ' ').capitalize()} pipeline {context.pipeline}?"
        body = approval_body(proposal, document)
        if not context.dry_run:
            context.ledger.propose(proposal, subject=subject, body=body, valid_for=self.valid_for)
        self.log.info("The action would change this:\n%s", body)
        return {
            **document,
            "asks": not context.dry_run,
            "proposal": None if context.dry_run else proposal.id,
            "subject": subject,
            "body": body,
        }

    def _empty_preview(self, context: ActionContext, unsettled: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document of a preview that found nothing to do.

        :param context: ledger, pipeline, actor and reason of the action
        :param unsettled: for a recovery, the ranges that are not read (``left``) and the alarms that are not
            ended (``alarms``)
        """
        from airflow_provider_ckpt.operators._markdown import unsettled_sections

        message = f"There is nothing to {self.action.replace('_', ' ')} in pipeline {context.pipeline}."
        body = "\n\n".join(part for part in (message, *unsettled_sections(unsettled)) if part)
        self.log.info(body)
        return {
            "pipeline": context.pipeline,
            "action": self.action,
            "applied": False,
            "dry_run": True,
            "actor": context.actor,
            "reason": context.reason,
            "asks": False,
            "proposal": None,
            "subject": message,
            "body": body,
            **unsettled,
        }

    def _request(self) -> ActionRequest:
        """Return the requested action as :class:`ActionRequest`, built from the rendered parameters.

        :raises ConfigError: if there is no such action, or a parameter cannot be parsed
        """
        from airflow_provider_ckpt.core.action import ActionKind
        from airflow_provider_ckpt.replication.actions.proposals import REQUESTABLE, ActionRequest

        if self.action not in REQUESTABLE:
            raise ConfigError(f"there is no action {self.action!r}.", hint=f"Known: {', '.join(REQUESTABLE)}.")
        return ActionRequest(
            ActionKind(self.action),
            _templates.optional_text(self.partition),
            _templates.whole_number("to_position", self.to_position),
            _templates.optional_text(self.to_time),
            _templates.text_tuple("batches", self.batches),
            _templates.text_tuple("error_types", self.error_types),
            _templates.whole_number("stop_at", self.stop_at),
            _templates.optional_text(self.ledger_id),
        )
