"""``CkptPreviewOperator``: what a remedy would do to a pipeline, for a person to approve; it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.skipmixin import SkipMixin

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators import templated
from airflow_provider_ckpt.operators.act import CkptActOperator
from airflow_provider_ckpt.operators.base import hand_over

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.acting import Errand
    from airflow_provider_ckpt.replication.proposing import Ask


class CkptPreviewOperator(CkptActOperator, SkipMixin):
    """Find the one act that does what is asked for, and say what would become of it.

    Returns the document of a dry run, and with it ``proposal``, the act itself for :class:`CkptCarryOutOperator`,
    ``subject`` and ``body`` for whoever approves it, and ``asks``, whether anybody is asked at all: where there is
    nothing to do, or ``dry_run`` is set, the tasks that follow directly are skipped. All of its fields may be
    templates; an empty one counts as left out.

    :param remedy: ``recover``, ``rewind``, ``replay_dead_letters``, ``release``, ``skip``, ``force_stop``, ``resume``
    :param partition: for a rewind of one of several source partitions
    :param to_position: for a rewind: the first position to read again
    :param to_time: for a rewind: back to where the checkpoint stood then
    :param batches: for a release, skip or replay (``partition#seq``)
    :param error_types: for a replay: dead letters of these types only
    :param stop_at: for a replay: only the first so many
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

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        found = hand_over(context, super().execute(context))
        if not found["asks"]:
            self.skip(ti=context["ti"], tasks=self.get_direct_relatives(upstream=False))
        return found

    def act(self, errand: Errand) -> dict[str, Any]:
        """Look at it."""
        from airflow_provider_ckpt.operators.markdown import proposal
        from airflow_provider_ckpt.replication.proposing import preview, propose

        act = propose(errand, self._ask())
        if act is None:
            return self._nothing(errand)
        document = preview(errand, act)
        body = proposal(act, document)
        self.log.info("It would do this:\n%s", body)
        return {
            **document,
            "asks": not errand.dry_run,
            "proposal": act.to_json(),
            "subject": f"{self.remedy.replace('_', ' ').capitalize()} pipeline {errand.pipeline}?",
            "body": body,
        }

    def _nothing(self, errand: Errand) -> dict[str, Any]:
        told = f"There is nothing to {self.remedy.replace('_', ' ')} in pipeline {errand.pipeline}."
        self.log.info(told)
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
            "body": told,
        }

    def _ask(self) -> Ask:
        from airflow_provider_ckpt.replication.proposing import Ask, Remedy

        try:
            remedy = Remedy(self.remedy)
        except ValueError:
            known = ", ".join(Remedy)
            raise ConfigError(f"there is no action {self.remedy!r}.", hint=f"Known: {known}.") from None
        return Ask(
            remedy,
            templated.word(self.partition),
            templated.number("to_position", self.to_position),
            templated.word(self.to_time),
            templated.texts("batches", self.batches),
            templated.texts("error_types", self.error_types),
            templated.number("stop_at", self.stop_at),
        )
