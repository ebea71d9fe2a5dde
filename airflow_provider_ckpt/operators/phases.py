"""Whether a pipeline may plan and begin: ``CkptDrainOperator``, ``CkptResumeOperator``, ``CkptForceStopOperator``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.operators._action import CkptActOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.actions import Errand


class _CkptPhaseOperator(CkptActOperator):
    kind: ClassVar[ActKind]

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from airflow_provider_ckpt.replication.actions.actions import in_ledger

        return in_ledger(errand, Act(self.kind))


class CkptDrainOperator(_CkptPhaseOperator):
    """Plan and begin nothing more, and let what is in flight end. Runs go on reconciling; ``resume`` ends it."""

    kind = ActKind.DRAIN


class CkptResumeOperator(_CkptPhaseOperator):
    """Let a draining or stopped pipeline plan and begin again."""

    kind = ActKind.RESUME


class CkptForceStopOperator(CkptActOperator):
    """Take the lease from whoever holds it, fence, and abandon what is in flight; the checkpoint stays.

    The run that held it is refused from then on. Needs a ``reason``.
    """

    needs_reason = True

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from airflow_provider_ckpt.replication.actions.actions import force_stop

        return force_stop(errand)
