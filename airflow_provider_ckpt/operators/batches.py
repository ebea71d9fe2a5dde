"""``CkptReleaseOperator`` and ``CkptSkipOperator``: release held batches, or skip batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActionOperator
from airflow_provider_ckpt.operators._declaration import Declaration

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


class _CkptBatchesOperator(CkptActionOperator):
    """Base of the operators that release or skip the batches given in the parameter ``batches``."""

    template_fields: Sequence[str] = (*CkptActionOperator.template_fields, "batches")

    def __init__(
        self,
        *,
        pipeline: Declaration,
        batches: Sequence[str] | str = (),
        reason: str | None = None,
        dry_run: bool | str = False,
        actor: str | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            pipeline=pipeline, reason=reason, dry_run=dry_run, actor=actor, ckpt_conn_id=ckpt_conn_id, **kwargs
        )
        self.batches = batches


class CkptReleaseOperator(_CkptBatchesOperator):
    """Release held batches: the next run sends them, and counts their attempts from zero again.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param batches: batches to release (``partition#seq``); if empty, all held batches
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change
    :param actor: actor that the audit log names instead of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Release the batches and return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """
        from airflow_provider_ckpt.replication.actions.carry_out_action import apply_in_ledger
        from airflow_provider_ckpt.replication.actions.parse_arguments import parse_batch_keys

        keys = parse_batch_keys(_templates.text_tuple("batches", self.batches))
        return apply_in_ledger(context, Action(ActionKind.RELEASE, keys))


class CkptSkipOperator(_CkptBatchesOperator):
    """Skip batches: their records are not delivered, and the checkpoint may pass them. Needs a ``reason``.

    If a batch was ever started, the next run claims the verdict ``void`` for it in the sink. If the sink then turns out
    to have a receipt ``delivered`` already, that verdict stays.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param batches: batches to skip (``partition#seq``), at least one
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change
    :param actor: actor that the audit log names instead of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    needs_reason = True

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Skip the batches and return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        :raises ConfigError: if no batch is given
        """
        from airflow_provider_ckpt.replication.actions.carry_out_action import skip_batches

        chosen = _templates.text_tuple("batches", self.batches)
        if not chosen:
            raise ConfigError("name the batches to skip.", pipeline=context.pipeline)
        return skip_batches(context, chosen)
