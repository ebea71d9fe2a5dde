"""``CkptRecoverOperator``: find what is unaccounted for, and have it read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators._action import CkptActOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.actions import Errand


class CkptRecoverOperator(CkptActOperator):
    """List what is above the low watermark and unaccounted for, and have the next run read it again.

    Returns what is missing, what is to be read again, and what is left for a person: an append sink would double
    records that turned up late in a range, so there they are only listed. An upsert sink is rewound to the low
    watermark (``rewinds_to``), so that it takes all that follows in order.
    """

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from airflow_provider_ckpt.replication.actions.fenced_actions import recover

        setup = errand.setup()
        return recover(setup, dry_run=errand.dry_run, who=errand.who, why=errand.why)
