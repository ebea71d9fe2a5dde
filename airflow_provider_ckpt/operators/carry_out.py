"""``CkptCarryOutOperator`` and ``CkptReportOperator``: carry out an approved action, and report its outcome.

Both operators read the proposal from the ledger. They use no XCom, since any task of the DAG run can write one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.proposals import ProposalState
from airflow_provider_ckpt.core.ranges import position_text
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger
from airflow_provider_ckpt.operators._action import CkptActionOperator
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators._named import CkptNamedOperator
from airflow_provider_ckpt.operators._origin import proposal_origin

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.types import ProposalRecord
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


class CkptCarryOutOperator(CkptActionOperator):
    """Carry out exactly the action that :class:`CkptPreviewOperator` proposed; the actor is the user who approved it.

    The transaction that applies the action also marks the proposal as used, so a second use is refused even if tasks
    are cleared. If the action is no longer possible, the proposal is refused permanently. If a user other than the
    approver requested the action, the reason in the audit log also names that user. The task returns the action's
    result document.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param preview: id of the :class:`CkptPreviewOperator` task
    :param dry_run: whether to only report what the action would change
    :param declarations: folder of YAML declarations, as for :class:`CkptPreviewOperator`
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    def __init__(
        self,
        *,
        pipeline: Declaration,
        preview: str,
        dry_run: bool | str = False,
        declarations: Path | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, dry_run=dry_run, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.preview = preview
        self.declarations = declarations
        self._origin = ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Carry out the approved action, and return its result document.

        :param context: the task's context
        :raises AirflowFailException: if no user has approved the action, or it is no longer possible; nothing was
            changed
        """
        self._origin = proposal_origin(context, self.preview)
        return super().execute(context)

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Carry out the action of the approved proposal, with the approver as actor, and return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        :raises LedgerStateError: if no user has approved the proposal, or its action is no longer possible
        :raises ConfigError: if the proposal is about another pipeline, or its action is no longer possible
        """
        from dataclasses import replace

        from airflow_provider_ckpt.replication.actions.proposals import carry_out

        found = context.ledger.load_approved_proposal(self._origin)
        proposal, actor = found.proposal, str(found.answered_by)
        if proposal.pipeline != context.pipeline:
            raise ConfigError(f"proposal {proposal.id} is about pipeline {proposal.pipeline}, not {context.pipeline}.")
        reason = proposal.reason if proposal.actor == actor else f"{proposal.reason} (requested by {proposal.actor})"
        try:
            return carry_out(replace(context, actor=actor, reason=reason, proposal=proposal.id), proposal.action)
        except (ConfigError, LedgerStateError) as refusal:
            context.ledger.refuse_proposal(proposal.id, str(refusal))
            raise


_UNKNOWN: Mapping[str, Any] = {"phase": None, "partitions": (), "batches": {}, "dead_letters": {}}
"""Status of a pipeline that the ledger does not know."""


class CkptReportOperator(CkptNamedOperator):
    """Report the outcome of a proposal (carried out, stored, rejected, dry run) and the pipeline's present state.

    The task returns ``{"outcome", "pipeline", "phase", "checkpoint", "batches", "dead_letters"}``; the phase is None if
    the ledger does not know the pipeline.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param preview: id of the :class:`CkptPreviewOperator` task
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    def __init__(
        self, *, pipeline: Declaration, preview: str, ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any
    ) -> None:
        super().__init__(pipeline=pipeline, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.preview = preview

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the proposal and the pipeline's status from the ledger, and return the report.

        :param context: the task's context
        :return: dict with the keys ``outcome``, ``pipeline``, ``phase``, ``checkpoint``, ``batches`` and
            ``dead_letters``
        """
        with self.translate_errors(), open_ledger(self.ckpt_conn_id) as ledger:
            found = ledger.load_newest_proposal(proposal_origin(context, self.preview))
            pipeline = self.pipeline_name if found is None else found.proposal.pipeline
            is_known = pipeline in ledger.pipelines()  # unknown if its adoption was rejected
            status = ledger.status(pipeline) if is_known else _UNKNOWN
        report = {
            "outcome": describe_outcome(found),
            "pipeline": pipeline,
            "phase": status["phase"],
            "checkpoint": {part["id"]: part["committed"] for part in status["partitions"]},
            "batches": status["batches"],
            "dead_letters": status["dead_letters"],
        }
        subject = f"{found.proposal.action.kind.value} of pipeline {pipeline}" if found else f"pipeline {pipeline}"
        self.log.info("%s: %s", subject, report["outcome"])
        checkpoint = {name: position_text(position) for name, position in report["checkpoint"].items()}
        self.log.info("The pipeline now: %s, batches %s, checkpoint %s", report["phase"], report["batches"], checkpoint)
        return report


def describe_outcome(found: ProposalRecord | None) -> str:
    """Return a sentence about the outcome of a proposal, such as ``done, approved by airflow:ann``.

    :param found: the proposal; None if nothing was proposed
    """
    if found is None:
        return "nothing was proposed, since there was nothing to do or it was a dry run; nothing was changed"
    result = found.result or {}
    if found.state is ProposalState.CARRIED_OUT:
        if result["applied"]:
            return f"done, approved by {found.answered_by}"
        return f"stored as action {result['intent']}, approved by {found.answered_by}; a run applies it"
    if found.state is ProposalState.REJECTED:
        answer = f"rejected by {found.answered_by}" if found.answered_by else "not answered in time"
        return f"{answer}, nothing was changed"
    if found.state is ProposalState.REFUSED:
        return f"refused: {result['refusal']}"
    return f"{found.state.value.replace('_', ' ')}, nothing was changed"
