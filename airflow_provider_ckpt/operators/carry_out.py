"""``CkptCarryOutOperator``: do what was proposed and approved; ``CkptReportOperator``: say what became of it.

Both take what they need from the ledger. What other tasks handed over as XComs, anybody may have written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.proposals import ProposalState
from airflow_provider_ckpt.ledger_location import open_ledger
from airflow_provider_ckpt.operators._action import CkptActOperator
from airflow_provider_ckpt.operators._named import CkptNamedOperator
from airflow_provider_ckpt.operators._origin import origin_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.types import ProposalRecord
    from airflow_provider_ckpt.replication.actions.actions import Errand


class CkptCarryOutOperator(CkptActOperator):
    """Carry out the very act that :class:`CkptPreviewOperator` proposed, in the name of whoever approved it.

    The approval is used up in the transaction of the act: a second use is refused, however often tasks are cleared.
    An act that no longer fits is refused for good. Returns the act's document. The reason in the audit trail also
    names who asked, where that was somebody else.

    :param preview: id of the preview's task
    """

    def __init__(self, *, preview: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.preview = preview
        self._origin = ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it.

        :raises AirflowFailException: if nobody has approved, or what was approved no longer fits; nothing was changed
        """
        self._origin = origin_of(context, self.preview)
        return super().execute(context)

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from dataclasses import replace

        from airflow_provider_ckpt.replication.actions.proposals import carry_out

        found = errand.ledger.approved_proposal(self._origin)
        proposal, who = found.proposal, str(found.answered_by)
        if proposal.pipeline != errand.pipeline:
            raise ConfigError(f"proposal {proposal.id} is about pipeline {proposal.pipeline}, not {errand.pipeline}.")
        why = proposal.why if proposal.who == who else f"{proposal.why} (asked for by {proposal.who})"
        try:
            return carry_out(replace(errand, who=who, why=why, proposal=proposal.id), proposal.act)
        except (ConfigError, LedgerStateError) as refusal:
            errand.ledger.refuse_proposal(proposal.id, str(refusal))
            raise


class CkptReportOperator(CkptNamedOperator):
    """Say what became of a proposal: done, stored, rejected, or only looked at; and where the pipeline stands now.

    Returns ``{"outcome", "pipeline", "phase", "checkpoint", "batches", "dead_letters"}``.

    :param preview: id of the preview's task
    """

    def __init__(self, *, preview: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.preview = preview

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        with self.errors(), open_ledger(self.ckpt_conn_id) as ledger:
            found = ledger.newest_proposal(origin_of(context, self.preview))
            pipeline = self.pipeline_name if found is None else found.proposal.pipeline
            status = ledger.status(pipeline)
        report = {
            "outcome": outcome(found),
            "pipeline": pipeline,
            "phase": status["phase"],
            "checkpoint": {part["id"]: part["committed"] for part in status["partitions"]},
            "batches": status["batches"],
            "dead_letters": status["dead_letters"],
        }
        asked = f"{found.proposal.act.kind.value} of pipeline {pipeline}" if found else f"pipeline {pipeline}"
        self.log.info("%s: %s", asked, report["outcome"])
        self.log.info("The pipeline now: %s", {name: report[name] for name in ("phase", "checkpoint", "batches")})
        return report


def outcome(found: ProposalRecord | None) -> str:
    """What became of a proposal, in words.

    :param found: the proposal, None if there is none
    """
    if found is None:
        return "nothing was proposed, since there was nothing to do or it was a dry run; nothing was changed"
    result = found.result or {}
    if found.state is ProposalState.CARRIED_OUT:
        if result["applied"]:
            return f"done, approved by {found.answered_by}"
        return f"stored as number {result['intent']}, approved by {found.answered_by}; a run applies it"
    if found.state is ProposalState.REJECTED:
        heard = f"rejected by {found.answered_by}" if found.answered_by else "not answered in time"
        return f"{heard}, nothing was changed"
    if found.state is ProposalState.REFUSED:
        return f"refused: {result['refusal']}"
    return f"{found.state.value.replace('_', ' ')}, nothing was changed"
