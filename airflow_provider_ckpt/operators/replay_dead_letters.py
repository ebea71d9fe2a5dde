"""``CkptReplayDeadLettersOperator``: have the next run send dead letters again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActionOperator
from airflow_provider_ckpt.operators._declaration import Declaration

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.replayable_dead_letters import Selection
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


class CkptReplayDeadLettersOperator(CkptActionOperator):
    """Have the next run send dead letters again, with the transform that the pipeline declares at that time.

    The dead letters are sent in batches of their own, apart from the source's order. A record that fails again becomes
    a dead letter again. Replaying the same dead letters twice delivers them once. Without a selection, all dead letters
    that were neither replayed nor discarded are replayed. The result document also has the key ``records``, the number
    of dead letters.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param error_types: replay only dead letters of these error types
    :param batches: replay only dead letters of these batches (``partition#seq``)
    :param since: replay only records dead-lettered at this time or later (ISO 8601; UTC without a zone)
    :param until: replay only records dead-lettered before this time (ISO 8601; UTC without a zone)
    :param query: replay only dead letters that contain this text in error, bytes or headers; unlike in the other
        parameters, ``null`` and ``none`` are ordinary texts here
    :param stop_at: largest number of dead letters to replay; by default all that the other parameters select
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change
    :param actor: actor that the audit log names instead of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    template_fields: Sequence[str] = (
        *CkptActionOperator.template_fields,
        "error_types",
        "batches",
        "since",
        "until",
        "query",
        "stop_at",
    )

    def __init__(
        self,
        *,
        pipeline: Declaration,
        error_types: Sequence[str] | str = (),
        batches: Sequence[str] | str = (),
        since: str | None = None,
        until: str | None = None,
        query: str | None = None,
        stop_at: int | str | None = None,
        reason: str | None = None,
        dry_run: bool | str = False,
        actor: str | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            pipeline=pipeline, reason=reason, dry_run=dry_run, actor=actor, ckpt_conn_id=ckpt_conn_id, **kwargs
        )
        self.error_types = error_types
        self.batches = batches
        self.since = since
        self.until = until
        self.query = query
        self.stop_at = stop_at

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Have the next run send the selected dead letters again, and return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """
        from airflow_provider_ckpt.core.action import ActionKind
        from airflow_provider_ckpt.replication.actions.carry_out_action import act_on_dead_letters

        return act_on_dead_letters(
            context, ActionKind.REPLAY_DEAD_LETTERS, self._selection(), _templates.free_text(self.query)
        )

    def _selection(self) -> Selection:
        """Return the selection by error type, batch, time and number; :meth:`run_action` applies ``query``."""
        from airflow_provider_ckpt.replication.actions.parse_arguments import parse_selection

        return parse_selection(
            _templates.text_tuple("error_types", self.error_types),
            _templates.text_tuple("batches", self.batches),
            _templates.optional_text(self.since),
            _templates.optional_text(self.until),
            _templates.whole_number("stop_at", self.stop_at),
        )
