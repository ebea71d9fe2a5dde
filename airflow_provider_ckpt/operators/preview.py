"""``CkptPreviewOperator``: what a remedy would do to a pipeline, proposed to a person; it changes nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.skipmixin import SkipMixin

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import open_ledger
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActOperator
from airflow_provider_ckpt.operators._origin import origin_of
from airflow_provider_ckpt.operators.base import hand_over

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.actions.actions import Errand
    from airflow_provider_ckpt.replication.actions.proposals import Ask

LONGEST = timedelta(days=7)
"""No proposal can be used for longer than this, unless its preview says so."""


class CkptPreviewOperator(CkptActOperator, SkipMixin):
    """Find the one act that does what is asked for, say what would become of it, and propose it.

    The proposal is stored in the ledger, under an id that is good for one use; :class:`CkptApprovalOperator` and
    :class:`CkptCarryOutOperator` take it from there. One that this task made before in the same run is void. Where
    there is nothing to do, or ``dry_run`` is set, nothing is proposed, and the tasks that follow directly are skipped.

    Returns the document of a dry run, for people to read, with ``asks``, whether anybody is asked, ``proposal``, its
    id, and ``subject`` and ``body``, what they are asked. All of its fields may be templates; an empty one counts as
    left out.

    :param remedy: ``recover``, ``rewind``, ``replay_dead_letters``, ``release``, ``skip``, ``force_stop``, ``resume``,
        ``resend_to_sink``, ``keep_sink``, ``move``
    :param partition: for a rewind of one of several source partitions
    :param to_position: for a rewind: the first position to read again
    :param to_time: for a rewind: back to where the checkpoint stood then
    :param batches: for a release, skip or replay (``partition#seq``)
    :param error_types: for a replay: dead letters of these types only
    :param stop_at: for a replay: only the first so many
    :param valid_for: how long the proposal can be approved and carried out
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
        remedy: str,
        partition: str | None = None,
        to_position: int | str | None = None,
        to_time: str | None = None,
        batches: Sequence[str] | str = (),
        error_types: Sequence[str] | str = (),
        stop_at: int | str | None = None,
        valid_for: timedelta = LONGEST,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
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
        """Run it.

        :raises AirflowFailException: if what is asked for does not fit; nothing is proposed then
        """
        self._origin = origin_of(context, self.task_id)
        with self.errors(), open_ledger(self.ckpt_conn_id) as ledger:
            ledger.void_proposals(self._origin)
        found = hand_over(context, super().execute(context))
        if not found["asks"]:
            self.skip(ti=context["ti"], tasks=self.get_direct_relatives(upstream=False))
        return found

    def act(self, errand: Errand) -> dict[str, Any]:
        """Look at it."""
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
        self.log.info("It would do this:\n%s", body)
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
