"""``CkptRecoverOperator``: find records that no receipt accounts for, and have the next run read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators._action import CkptActionOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


class CkptRecoverOperator(CkptActionOperator):
    """Find records above the low watermark that no receipt accounts for, and have the next run read them.

    The task returns the ranges with such records (key ``missing``), those that the next run reads
    (``to_be_read``), and those that are left to a user (``left``). With an append sink, records that appeared
    late are read by position, only where no record was read before; late records that cannot be distinguished from
    records that were read are only listed. With an upsert sink, the partition is rewound to its low watermark
    (``rewinds_to``), so that the sink receives everything after it in order.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: report what would change, and change nothing
    :param actor: actor to name in the audit log in place of the DAG run's user
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
