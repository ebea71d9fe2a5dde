"""The task group's ``settle`` task: makes the ledger agree with the receipts, whatever became of ``submit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators._step import CkptStepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptSettleOperator(CkptStepOperator):
    """Settle what ``submit`` left: receipts are read, the checkpoint moves over what they resolve."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        before = self.previous(context)
        with self.carry_on(context, before) as (_, run):
            run.settle()
            return self.report(context, run, before)
