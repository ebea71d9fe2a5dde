"""``CkptDrainOperator``, ``CkptResumeOperator``, ``CkptForceStopOperator``: change the phase of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.operators._action import CkptActionOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


class _CkptPhaseOperator(CkptActionOperator):
    """Base of the operators that change the phase of a pipeline; the class attribute ``kind`` names the action."""

    kind: ClassVar[ActionKind]

    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Apply the action to the pipeline in the ledger, and return the result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """
        from airflow_provider_ckpt.replication.actions.carry_out_action import apply_in_ledger

        return apply_in_ledger(context, Action(self.kind))


class CkptDrainOperator(_CkptPhaseOperator):
    """Drain a pipeline: batches in flight end and are settled, but runs plan and start no more batches.

    :class:`CkptResumeOperator` ends the draining.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change
    :param actor: actor that the audit log names instead of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    kind = ActionKind.DRAIN


class CkptResumeOperator(_CkptPhaseOperator):
    """Resume a draining or stopped pipeline: the next run plans and starts batches again.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change
    :param actor: actor that the audit log names instead of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    kind = ActionKind.RESUME


class CkptForceStopOperator(CkptActionOperator):
    """Stop a pipeline at once, and abandon its batches in flight. Needs a ``reason``.

    The action takes the lease from the run that holds it, and fences the sink, which then refuses that run. The
    checkpoint does not move.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change
    :param actor: actor that the audit log names instead of the DAG run's user
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
