"""The task group's ``route`` task: the delivery policy's branches after a run is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BranchMixIn

from airflow_provider_ckpt.core.policy import Route
from airflow_provider_ckpt.operators.step import CkptStepOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptRouteOperator(CkptStepOperator, BranchMixIn):
    """Choose among ``retry``, ``dead_letters``, ``hold`` and ``done``; the others are skipped.

    Releases the lease, unless ``retry`` is chosen, which then carries it on.

    :param branches: the task id of each route
    """

    inherits_from_skipmixin = True

    def __init__(self, *, branches: dict[Route, str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.branches = branches

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        before = self.previous(context)
        chosen = [Route(name) for name in before["summary"]["route"]]
        with self.carry_on(context, before) as (_, run):
            handed = self.report(context, run, before, release=Route.RETRY not in chosen)
        self.do_branch(context, [self.branches[route] for route in chosen])
        return handed
