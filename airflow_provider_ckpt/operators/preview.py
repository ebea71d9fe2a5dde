"""``CkptPreviewOperator``: compute what an action would change in a pipeline, and propose it for approval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.skipmixin import SkipMixin

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActOperator
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators._origin import origin_of
from airflow_provider_ckpt.operators.base import hand_over

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.actions.actions import Errand
    from airflow_provider_ckpt.replication.actions.proposals import Ask

LONGEST = timedelta(days=7)
"""Default of the time for which a proposal can be used."""


class CkptPreviewOperator(CkptActOperator, SkipMixin):
    """Compute the action that a user requests, preview its effect, and store it in the ledger as a proposal.

    The pipeline itself is not changed. :class:`CkptApprovalOperator` and :class:`CkptCarryOutOperator` read the
    proposal from the ledger. It can be used once, and it voids an earlier proposal of this task in the same DAG run. If
    there is nothing to do, or with ``dry_run``, nothing is proposed and the directly following tasks are skipped.

    Returns the result document of a dry run and these keys: ``asks``, whether a user is asked for approval;
    ``proposal``, the proposal's id; ``subject`` and ``body``, the question. All parameters but ``valid_for`` and
    ``kwargs`` are templated; an empty value counts as left out.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param remedy: the action: ``recover``, ``rewind``, ``replay_dead_letters``, ``release``, ``skip``, ``force_stop``,
        ``resume``, ``resend_to_sink``, ``keep_sink`` or ``move``
    :param partition: for rewind and resend_to_sink: the source partition
    :param to_position: for rewind and resend_to_sink: first position to read again
    :param to_time: for rewind: time (ISO 8601) whose checkpoint to return to
    :param batches: for release, skip and replay_dead_letters: batches (``partition#seq``); for skip at least one, for
        the others empty means all
    :param error_types: for replay_dead_letters: replay only dead letters of these error types
    :param stop_at: for replay_dead_letters: replay at most this many
    :param valid_for: time for which the proposal can be approved and carried out
    :param reason: reason of the action, stored in the audit log
    :param dry_run: preview only, and propose nothing
    :param who: actor to name in the audit log in place of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    template_fields: Sequence[str] = (
        *CkptActOperator.template_fields,
        "remedy",
        "partition",
        "to_position",
        "to_time",
        "batches",
        "error_types",
        "stop_at",
    )
    inherits_from_skipmixin = True
    needs_reason = True

    def __init__(
        self,
        *,
        pipeline: Declaration,
        remedy: str,
        partition: str | None = None,
        to_position: int | str | None = None,
        to_time: str | None = None,
        batches: Sequence[str] | str = (),
        error_types: Sequence[str] | str = (),
        stop_at: int | str | None = None,
        valid_for: timedelta = LONGEST,
        reason: str | None = None,
        dry_run: bool | str = False,
        who: str | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            pipeline=pipeline, reason=reason, dry_run=dry_run, who=who, ckpt_conn_id=ckpt_conn_id, **kwargs
        )
        self.remedy = remedy
        self.partition = partition
        self.to_position = to_position
        self.to_time = to_time
        self.batches = batches
        self.error_types = error_types
        self.stop_at = stop_at
        self.valid_for = valid_for
        self._origin = ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Propose the action and return the preview.

        :raises AirflowFailException: if the action is not possible in the pipeline's state; nothing is proposed then
        """
        self._origin = origin_of(context, self.task_id)
        with self.errors(), open_ledger(self.ckpt_conn_id) as ledger:
            ledger.void_proposals(self._origin)
        found = hand_over(context, super().execute(context))
        if not found["asks"]:
            self.skip(ti=context["ti"], tasks=self.get_direct_relatives(upstream=False))
        return found

    def act(self, errand: Errand) -> dict[str, Any]:
        """Compute the action, propose it, and return the preview."""
        from airflow_provider_ckpt.core.proposals import Proposal
        from airflow_provider_ckpt.operators._markdown import question
        from airflow_provider_ckpt.replication.actions.proposals import preview, propose

        proposed = propose(errand, self._ask())
        act = proposed.act
        if act is None:
            return self._nothing(errand, proposed.open)
        document = {**preview(errand, act), **proposed.open}
        proposal = Proposal.new(errand.pipeline, act, origin=self._origin, who=errand.who, why=errand.why)
        subject = f"{self.remedy.replace('_', ' ').capitalize()} pipeline {errand.pipeline}?"
        body = question(proposal, document)
        if not errand.dry_run:
            errand.ledger.propose(proposal, subject=subject, body=body, valid_for=self.valid_for)
        self.log.info("The action would change this:\n%s", body)
        return {
            **document,
            "asks": not errand.dry_run,
            "proposal": None if errand.dry_run else proposal.id,
            "subject": subject,
            "body": body,
        }

    def _nothing(self, errand: Errand, unsettled: Mapping[str, Any]) -> dict[str, Any]:
        from airflow_provider_ckpt.operators._markdown import still_open

        told = f"There is nothing to {self.remedy.replace('_', ' ')} in pipeline {errand.pipeline}."
        body = "\n\n".join(part for part in (told, *still_open(unsettled)) if part)
        self.log.info(body)
        return {
            "pipeline": errand.pipeline,
            "act": self.remedy,
            "applied": False,
            "dry_run": True,
            "who": errand.who,
            "reason": errand.why,
            "asks": False,
            "proposal": None,
            "subject": told,
            "body": body,
            **unsettled,
        }

    def _ask(self) -> Ask:
        from airflow_provider_ckpt.replication.actions.proposals import Ask, Remedy

        try:
            remedy = Remedy(self.remedy)
        except ValueError:
            known = ", ".join(Remedy)
            raise ConfigError(f"there is no action {self.remedy!r}.", hint=f"Known: {known}.") from None
        return Ask(
            remedy,
            _templates.word(self.partition),
            _templates.number("to_position", self.to_position),
            _templates.word(self.to_time),
            _templates.texts("batches", self.batches),
            _templates.texts("error_types", self.error_types),
            _templates.number("stop_at", self.stop_at),
        )
