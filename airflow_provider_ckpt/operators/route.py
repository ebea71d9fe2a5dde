"""The task group's ``route`` task: the delivery policy's branches after a run is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.assets.pipeline import announce
from airflow_provider_ckpt.core.policy import Route
from airflow_provider_ckpt.operators._branch import CkptBranchOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptRouteOperator(CkptBranchOperator):
    """Choose among ``retry``, ``dead_letters``, ``hold`` and ``done``; the others are skipped.

    Releases the lease, unless ``retry`` is chosen, which then carries it on.

    :param branches: the task id of each route
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        before = self.previous(context)
        chosen = [Route(name) for name in before["summary"]["route"]]
        with self.carry_on(context, before) as (_, run):
            handed = self.report(context, run, before, release=Route.RETRY not in chosen)
        if Route.RETRY not in chosen:
            announce(context, handed["summary"])
        self.choose(context, chosen)
        return handed
