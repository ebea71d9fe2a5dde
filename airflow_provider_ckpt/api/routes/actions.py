"""Routes of users' actions: dry run of an action, request to carry it out, and list of proposals with their outcomes.

A dry run stores the action in the ledger under a one-time id. The order to carry it out names only that id, so that
neither data from the browser nor another user can change the action.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from airflow.api_fastapi.logging.decorators import action_logging
from fastapi import APIRouter, Depends, HTTPException

from airflow_provider_ckpt.api import views
from airflow_provider_ckpt.api.access import Access, AccessDep, Acted, Seen, acted_pipeline
from airflow_provider_ckpt.api.action_texts import NOTHING, remark, summary
from airflow_provider_ckpt.api.ledgers import OpenedLedger
from airflow_provider_ckpt.api.line_views import partition_line
from airflow_provider_ckpt.api.models.actions import (
    ActionOrder,
    ActionOutcome,
    ActionWish,
    Change,
    Preview,
    ProposalPage,
    ProposalRow,
)
from airflow_provider_ckpt.api.models.fields import RunLink, shorten
from airflow_provider_ckpt.api.models.pipeline_list import Lease
from airflow_provider_ckpt.api.recovery_dags import recovery_forms
from airflow_provider_ckpt.api.requested_actions import NEED_SOURCE_OR_SINK, check_fields, make_action, no_setup
from airflow_provider_ckpt.core.action import NEED_REASON, NEED_RECEIPTS_READ, Action, ActionKind
from airflow_provider_ckpt.core.errors import ConfigError, LeaseBusyError, LedgerStateError
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.ledger.commands.dry_runs import MAX_LINES, DryRun
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.queries.overview import PipelineOverview
from airflow_provider_ckpt.ledger.queries.pipeline_tasks import PlannedPipeline
from airflow_provider_ckpt.ledger.types import ActionResult
from airflow_provider_ckpt.replication.actions import ledger_commands
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext
from airflow_provider_ckpt.replication.actions.ledger_commands import LEDGER_COMMANDS
from airflow_provider_ckpt.replication.actions.result_document import change_rows
from airflow_provider_ckpt.replication.process_lease_owner import is_dead

router = APIRouter(tags=["actions"])

_VALID_FOR = timedelta(minutes=15)
_PAGE = "page:"
_DELETE = frozenset({ActionKind.COLLECT_GARBAGE, ActionKind.DELETE_PIPELINE})
_CHANGES = 500


@router.post("/pipelines/{pipeline}/actions/preview", operation_id="preview_action")
def preview_action(found: Acted, ledger: OpenedLedger, access: AccessDep, wish: ActionWish) -> Preview:
    """Dry-run an action: return the changes that it would make, and an id with which the user can carry it out once.

    The pipeline is not changed. The id can be used for 15 minutes. For an action that needs the source or the sink,
    there is no id; the answer names the recovery DAGs that can carry out the action.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param access: rights of the user
    :param wish: body of the request
    """
    check_fields(wish, found.name)
    kind = ActionKind(wish.kind)
    _require_right(access, found, kind)
    if wish.kind in NEED_SOURCE_OR_SINK:
        return _of_dag(found, access, wish)
    context = ActionContext(ledger, found.name, no_setup, access.actor, dry_run=True)
    action = make_action(context, wish)
    if action is None:
        nothing = NOTHING.get(kind, f"There is nothing to {kind.value.replace('_', ' ')}.")
        return _preview(wish, nothing, by="ledger")
    tried = _try(context, action)
    origin = _origin(access, found.name)
    proposal = Proposal.new(found.name, action, origin=origin, actor=access.actor, reason=None)
    ledger.propose(proposal, subject="", body="", valid_for=_VALID_FOR)
    now = ledger.overview(found.name)
    lease = _lease_of(now.pipelines, now.at)
    is_immediate = kind in LEDGER_COMMANDS
    by = "run" if kind in NEED_RECEIPTS_READ or (lease is not None and not is_immediate) else "ledger"
    records = sum(item.records for item in action.dead_letters)
    return _preview(
        wish,
        summary(action, records),
        by=by,
        id=proposal.id,
        expires_at=now.at + _VALID_FOR,
        waits_for=None if is_immediate else lease,
        broken=views.lease(now.pipelines[0], now.at) if kind is ActionKind.BREAK_LEASE and now.pipelines else None,
        changes=_changes(tried.result.before, tried.result.after),
        before=[partition_line(line) for line in tried.before],
        after=[partition_line(line) for line in tried.after],
        records=records if action.dead_letters else None,
        remark=remark(tried.result),
    )


def _require_right(access: Access, found: PlannedPipeline, kind: ActionKind) -> None:
    """Refuse an action that deletes data of the ledger if the user is not an administrator.

    :param access: rights of the user
    :param found: the pipeline
    :param kind: kind of the action
    :raises HTTPException: with status 403
    """
    if kind in _DELETE and not access.may_delete(found.tasks):
        raise HTTPException(
            403,
            f"To {kind.value.replace('_', ' ')} takes the right to edit the ledger's connection, and the runs of every "
            "DAG that has run the pipeline.",
        )


def _try(context: ActionContext, action: Action) -> DryRun:
    """Compute the effect of an action without changing anything.

    For the deletion of a pipeline, the result includes the number lines of its partitions.

    :param context: ledger, pipeline and actor
    :param action: the action
    """
    ledger, pipeline = context.ledger, context.pipeline
    if action.kind not in LEDGER_COMMANDS:
        return ledger.try_action(pipeline, action, actor=context.actor, is_dead=is_dead)
    lines = ledger.lines(pipeline, limit=MAX_LINES) if action.kind is ActionKind.DELETE_PIPELINE else []
    return DryRun(ledger_commands.carry_out(context, action), lines, [])


def _of_dag(found: PlannedPipeline, access: Access, wish: ActionWish) -> Preview:
    forms = recovery_forms(access, found.name, wish)
    lacking = None if forms else "No recovery DAG that you may see offers this pipeline; see recovery_dag in the docs."
    sentence = f"{wish.kind.replace('_', ' ').capitalize()} needs the source or the sink; the recovery DAG does it."
    return _preview(wish, sentence, by="dag", recovery=forms, remark=lacking)


def _preview(wish: ActionWish, sentence: str, *, by: str, **more: Any) -> Preview:
    """Return the answer for a dry run; fields that are not given are empty.

    :param wish: the requested action
    :param sentence: summary of the action
    :param by: the way in which the action is carried out: ``ledger``, ``run`` or ``dag``, see :class:`Preview`
    :param more: further fields of :class:`Preview`
    """
    empty: dict[str, Any] = dict.fromkeys(("id", "expires_at", "waits_for", "broken", "records", "remark"))
    empty |= {"changes": [], "before": [], "after": [], "recovery": []}
    needs = {
        "needs_reason": ActionKind(wish.kind) in NEED_REASON or by == "dag",
        "needs_name": ActionKind(wish.kind) is ActionKind.DELETE_PIPELINE,
    }
    return Preview.model_validate(empty | {"kind": wish.kind, "by": by, "summary": sentence} | needs | more)


def _origin(access: Access, pipeline: str) -> str:
    """Return the origin of a user's proposals on this page for a pipeline; it differs from the origin of every task.

    :param access: rights of the user
    :param pipeline: name of the pipeline
    """
    return f"{_PAGE}{access.user.get_id()}:{pipeline}"


def _lease_of(pipelines: list[PipelineOverview], at: datetime) -> Lease | None:
    """Return the lease of a pipeline if a run holds it; else None.

    :param pipelines: list with the pipeline as its only item; empty if the ledger does not know the pipeline
    :param at: time of the snapshot
    """
    lease = views.lease(pipelines[0], at) if pipelines else None
    return lease if lease is not None and lease.held else None


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    rows = change_rows(before, after)
    return [Change(what=what, before=was, after=now) for what, was, now in rows if was != now][:_CHANGES]


@router.post(
    "/pipelines/{pipeline}/actions",
    operation_id="carry_out_action",
    dependencies=[Depends(acted_pipeline), Depends(action_logging(event="ckpt_carry_out_action"))],
)
def carry_out_action(found: Acted, ledger: OpenedLedger, access: AccessDep, order: ActionOrder) -> ActionOutcome:
    """Carry out the action of a dry run of the same user, or store it until a run applies it.

    The id of the dry run can be used once. The status is 409 if the id was used, has expired or belongs to another
    user, or if the pipeline's state no longer allows the action. The status is 422 if a required reason is missing, or
    if the request to delete a pipeline does not contain the pipeline's name; the id remains valid then.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param access: rights of the user
    :param order: body of the request
    """
    reason = (order.reason or "").strip() or None
    origin = _origin(access, found.name)
    action = ledger.take_up(
        order.id,
        pipeline=found.name,
        origin=origin,
        actor=access.actor,
        reason=reason,
        check=lambda taken: _check_order(access, found, order, taken),
    ).proposal.action
    context = ActionContext(ledger, found.name, no_setup, access.actor, reason, proposal=order.id)
    try:
        result = _carry_out(context, action)
    except (ConfigError, LeaseBusyError, LedgerStateError) as refusal:
        ledger.refuse_proposal(order.id, str(refusal))
        raise
    return _outcome(ledger, found, access, result, reason)


def _check_order(access: Access, found: PlannedPipeline, order: ActionOrder, action: Action) -> None:
    """Raise an error if the user may not carry out an action, or a deletion does not repeat the pipeline's name.

    :param access: rights of the user
    :param found: the pipeline
    :param order: the order to carry the action out
    :param action: the action
    :raises HTTPException: with status 403 if the user does not have, or no longer has, the right to carry out the
        action
    :raises ConfigError: if a deletion's order has no name, or not the pipeline's name
    """
    _require_right(access, found, action.kind)
    if action.kind is ActionKind.DELETE_PIPELINE and order.name != found.name:
        raise ConfigError(
            "the name of the pipeline to delete is missing, or another one.",
            pipeline=found.name,
            hint="Type the name of the pipeline to confirm.",
        )


def _carry_out(context: ActionContext, action: Action) -> ActionResult:
    if action.kind in LEDGER_COMMANDS:
        return ledger_commands.carry_out(context, action)
    return context.ledger.action(
        context.pipeline,
        action,
        actor=context.actor,
        reason=context.reason,
        is_dead=is_dead,
        proposal=context.proposal,
    )


def _outcome(
    ledger: Ledger, found: PlannedPipeline, access: Access, result: ActionResult, reason: str | None
) -> ActionOutcome:
    now = ledger.overview(found.name)
    return ActionOutcome(
        kind=result.action.kind.value,
        state="applied" if result.applied else "stored",
        number=result.intent,
        actor=access.actor,
        reason=reason,
        waits_for=None if result.applied else _lease_of(now.pipelines, now.at),
        changes=_changes(result.before, result.after),
        remark=remark(result),
        runs=[]
        if result.action.kind in _DELETE
        else [dag_id for dag_id in access.visible_dags(found.tasks) if access.may("POST", dag_id)],
    )


@router.get("/pipelines/{pipeline}/proposals", operation_id="list_proposals")
def list_proposals(found: Seen, ledger: OpenedLedger) -> ProposalPage:
    """Return the newest proposals of a pipeline: users' dry runs on the page, and proposals of recovery DAGs."""
    return ProposalPage(items=[_proposal(row) for row in ledger.proposal_page(found.name)])


def _proposal(row: Mapping[str, Any]) -> ProposalRow:
    is_of_page = row["origin"].startswith(_PAGE)
    result = row["result"] or {}
    return ProposalRow(
        id=row["id"],
        kind=row["action"]["kind"],
        by="page" if is_of_page else "dag",
        run=None if is_of_page else _task_of(row["origin"]),
        asked_by=shorten(row["actor"], 500),
        reason=views.text(row["reason"]),
        state=row["state"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        answered_by=views.text(row["answered_by"]),
        answered_at=row["answered_at"],
        number=result.get("intent"),
        refusal=views.text(result.get("refusal")),
    )


def _task_of(origin: str) -> RunLink | None:
    """Return the task that the origin of a proposal (``dag/run/task``) names; None if the origin has another form.

    :param origin: the origin
    """
    parts = origin.split("/")
    if len(parts) != 3:
        return None
    task, _, index = parts[2].removesuffix("]").partition("[")
    return RunLink(dag_id=parts[0], run_id=parts[1], task_id=task, map_index=int(index) if index.isdecimal() else -1)
