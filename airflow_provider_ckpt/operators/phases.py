"""``CkptDrainOperator``, ``CkptResumeOperator``, ``CkptForceStopOperator``: change the phase of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.operators._action import CkptActionOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


class _CkptPhaseOperator(CkptActionOperator):
    """Base of the operators that change the phase of a pipeline by the action in their class attribute ``kind``."""

    kind: ClassVar[ActionKind]

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Apply the action to the pipeline in the ledger, and return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """
        from airflow_provider_ckpt.replication.actions.carry_out_action import apply_in_ledger

        return apply_in_ledger(context, Action(self.kind))


class CkptDrainOperator(_CkptPhaseOperator):
    """Drain a pipeline: runs finish the batches in flight and reconcile, but plan and start no more batches.

    :class:`CkptResumeOperator` ends the draining.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: report what would change, and change nothing
    :param actor: actor to name in the audit log in place of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    kind = ActionKind.DRAIN


class CkptResumeOperator(_CkptPhaseOperator):
    """Resume a draining or stopped pipeline: the next run plans and starts batches again.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: report what would change, and change nothing
    :param actor: actor to name in the audit log in place of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    kind = ActionKind.RESUME


class CkptForceStopOperator(CkptActionOperator):
    """Stop a pipeline at once, and abandon its batches in flight. Needs a ``reason``.

    The lease is taken from the run that holds it, and the sink is fenced, so that it refuses that run from then on. The
    checkpoint stays where it is.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: report what would change, and change nothing
    :param actor: actor to name in the audit log in place of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    needs_reason = True

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Take the lease, fence the sink and stop the pipeline; return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """
        from airflow_provider_ckpt.replication.actions.carry_out_action import force_stop

        return force_stop(context)
