"""``CkptDrainOperator``, ``CkptResumeOperator``, ``CkptForceStopOperator``: change the phase of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.operators._action import CkptActOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.actions import Errand


class _CkptPhaseOperator(CkptActOperator):
    kind: ClassVar[ActKind]

    def act(self, errand: Errand) -> dict[str, Any]:
        """Change the phase in the ledger and return the result document."""
        from airflow_provider_ckpt.replication.actions.actions import in_ledger

        return in_ledger(errand, Act(self.kind))


class CkptDrainOperator(_CkptPhaseOperator):
    """Drain a pipeline: runs plan and start no more batches, finish those in flight, and still reconcile.

    :class:`CkptResumeOperator` ends the draining.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: report what would change, and change nothing
    :param who: actor to name in the audit log in place of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    kind = ActKind.DRAIN


class CkptResumeOperator(_CkptPhaseOperator):
    """Resume a draining or stopped pipeline: the next run plans and starts batches again.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: report what would change, and change nothing
    :param who: actor to name in the audit log in place of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    kind = ActKind.RESUME


class CkptForceStopOperator(CkptActOperator):
    """Take the lease from the run that holds it, fence the sink, and abandon the batches in flight.

    The run that held the lease is refused from then on, and the checkpoint stays. Needs a ``reason``.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: report what would change, and change nothing
    :param who: actor to name in the audit log in place of the DAG run's user
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    needs_reason = True

    def act(self, errand: Errand) -> dict[str, Any]:
        """Stop the pipeline and return the result document."""
        from airflow_provider_ckpt.replication.actions.actions import force_stop

        return force_stop(errand)
