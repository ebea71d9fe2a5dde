"""``CkptRewindOperator``: move a checkpoint back, so that all records from the new position on are delivered again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActionOperator
from airflow_provider_ckpt.operators._declaration import Declaration

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


class CkptRewindOperator(CkptActionOperator):
    """Move a pipeline's checkpoint back by starting a new generation.

    Unresolved batches of the old generation are not sent any more. An append sink gets the rows from the new position
    on a second time. ``reason`` and exactly one of ``to_position``, ``to_time`` and ``to_batch`` are required.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param to_position: first position to read again
    :param to_time: time (ISO 8601; UTC without a zone); the pipeline returns to the checkpoint that it had at this time
    :param to_batch: first batch to read again (``partition#seq``), found by its receipt in the sink
    :param partition: name of the source partition. It may be left out if there is only one, or with ``to_batch``, which
        contains the partition; without it, ``to_time`` applies to all source partitions
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change
    :param actor: actor that the audit log names instead of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    template_fields: Sequence[str] = (
        *CkptActionOperator.template_fields,
        "to_position",
        "to_time",
        "to_batch",
        "partition",
    )
    needs_reason = True

    def __init__(
        self,
        *,
        pipeline: Declaration,
        to_position: int | str | None = None,
        to_time: str | None = None,
        to_batch: str | None = None,
        partition: str | None = None,
        reason: str | None = None,
        dry_run: bool | str = False,
        actor: str | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            pipeline=pipeline, reason=reason, dry_run=dry_run, actor=actor, ckpt_conn_id=ckpt_conn_id, **kwargs
        )
        self.to_position = to_position
        self.to_time = to_time
        self.to_batch = to_batch
        self.partition = partition

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Rewind the pipeline, or store the action while a run holds the lease; return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """
        from airflow_provider_ckpt.core.action import Action, ActionKind
        from airflow_provider_ckpt.replication.actions.carry_out_action import apply_behind_fence
        from airflow_provider_ckpt.replication.actions.rewind_target import RewindTarget, resolve_positions

        target = RewindTarget(
            _templates.whole_number("to_position", self.to_position),
            _templates.optional_text(self.to_time),
            _templates.optional_text(self.to_batch),
        )
        where = resolve_positions(context, target, _templates.optional_text(self.partition))
        return apply_behind_fence(context, Action(ActionKind.REWIND, positions=where))
