"""``CkptRecoverOperator``: find records that were never read, and have the next run read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators._action import CkptActionOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


class CkptRecoverOperator(CkptActionOperator):
    """Find records above the low watermark that were never read, and have the next run read them.

    A record was never read if no receipt in the sink accounts for it.

    The task returns the ranges with such records (key ``missing``), those that the next run reads (``to_be_read``), and
    those that are left to a user (``left``). With an append sink, only positions at which no record was read before are
    read. A late row at a position with other rows cannot be told from the rows that were read; such positions are only
    listed. With an upsert sink, the partition is rewound to its low watermark (``rewinds_to``), so that the sink
    receives all later records in order.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change
    :param actor: actor that the audit log names instead of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Find the missing records, have the next run read them, and return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """
        from airflow_provider_ckpt.replication.actions.recover import recover

        setup = context.setup()
        return recover(setup, dry_run=context.dry_run, actor=context.actor, reason=context.reason)
