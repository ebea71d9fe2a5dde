"""Carry out a user's action, store it for the run that holds the lease, or preview it; return the result document.

The command line and the operators call these functions, so that both return the same document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.replication.actions import accept_sink, adopt_other_ledger, dead_letters
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced, apply_fenced_or_store
from airflow_provider_ckpt.replication.actions.parse_arguments import parse_batch_keys
from airflow_provider_ckpt.replication.actions.result_document import empty_document, result_document
from airflow_provider_ckpt.replication.process_lease_owner import is_dead

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import PipelineContext


@dataclass(frozen=True, slots=True)
class ActionContext:
    """Context of a user's action: ledger, pipeline, actor and reason.

    :param ledger: the ledger, open
    :param pipeline: name of the pipeline
    :param setup: function that returns the pipeline with its ledger, connections and lease owner; called only for an
        action that needs source or sink
    :param actor: the user who requests the action, such as ``cli:ann@host7``, which the audit log stores
    :param reason: the user's explanation, which the audit log stores; None if the user gave none
    :param dry_run: whether to report the result of the action without changing anything
    :param proposal: id of the approved proposal that the action carries out, which cannot be used again; None if the
        action needs no approval
    """

    ledger: Ledger
    pipeline: str
    setup: Callable[[], PipelineContext]
    actor: str
    reason: str | None = None
    dry_run: bool = False
    proposal: str | None = None


def apply_in_ledger(context: ActionContext, action: Action) -> dict[str, Any]:
    """Apply an action in the ledger alone, or store the action for the run that holds the lease.

    :param context: ledger, pipeline, actor and reason of the action
    :param action: the action
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it
    :raises LedgerStateError: if the state of the pipeline or of a batch does not allow the action
    """
    try:
        result = context.ledger.action(
            context.pipeline,
            action,
            actor=context.actor,
            reason=context.reason,
            is_dead=is_dead,
            dry_run=context.dry_run,
            proposal=context.proposal,
        )
    except LedgerStateError as refusal:
        refusal.hint = refusal.hint or f"See: airflow ckpt inspect {context.pipeline}"
        raise
    return result_document(context, result)


def apply_behind_fence(context: ActionContext, action: Action) -> dict[str, Any]:
    """Apply an action after fencing the sink, or store the action for the run that holds the lease.

    :param context: ledger, pipeline, actor and reason of the action
    :param action: the action
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it
    :raises LedgerStateError: if the state of the pipeline or of a batch does not allow the action
    """
    if context.dry_run:
        return apply_in_ledger(context, action)
    result = apply_fenced_or_store(
        context.setup(), action, actor=context.actor, reason=context.reason, proposal=context.proposal
    )
    return result_document(context, result)


def force_stop(context: ActionContext) -> dict[str, Any]:
    """Force a pipeline to stop: take the lease from its run, fence the sink, and abandon the batches in flight.

    :param context: ledger, pipeline, actor and reason of the action
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it
    """
    action = Action(ActionKind.FORCE_STOP)
    if context.dry_run:
        return apply_in_ledger(context, action) | {"waits_for": None}
    result = apply_fenced(
        context.setup(), action, actor=context.actor, reason=context.reason, proposal=context.proposal
    )
    return result_document(context, result)


def change_sink(context: ActionContext, action: Action) -> dict[str, Any]:
    """Accept the sink as it is, or move to another sink; such an action is never stored for a run.

    :param context: ledger, pipeline, actor and reason of the action
    :param action: action that :func:`~airflow_provider_ckpt.replication.actions.accept_sink.make_acceptance` or
        :func:`~airflow_provider_ckpt.replication.actions.accept_sink.make_move` returned
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it
    :raises LeaseBusyError: if a run still holds the lease after ``lease.wait``; at once with ``lease.on_busy: fail``,
        or for a move away from a sink that cannot be reached
    :raises LedgerStateError: if sink or pipeline have changed since the action was made; nothing was changed
    """
    if context.dry_run:
        return preview_sink_change(context, action) | {"waits_for": None, "next": _describe_resend(action)}
    result = result_document(
        context,
        accept_sink.apply_sink_change(
            context.setup(), action, actor=context.actor, reason=context.reason, proposal=context.proposal
        ),
    )
    return result | {"next": _describe_resend(action)}


def preview_sink_change(context: ActionContext, action: Action) -> dict[str, Any]:
    """Try an acceptance of the sink or a move without changing anything.

    :param context: ledger, pipeline, actor and reason of the action, with ``dry_run`` set
    :param action: the acceptance or the move
    :return: result document, a JSON-ready dict: the present state, and the state that the action would lead to
    :raises LedgerStateError: if the state of the pipeline or the sink does not allow the action
    """
    if action.kind is ActionKind.MOVE:
        return apply_in_ledger(context, action)
    return result_document(
        context, accept_sink.try_acceptance(context.setup(), action, actor=context.actor, reason=context.reason)
    )


def adopt_receipts(context: ActionContext, action: Action) -> dict[str, Any]:
    """Adopt another ledger's receipts in the sink; such an action is never stored for a run.

    :param context: ledger, pipeline, actor and reason of the action
    :param action: action that names the other ledger
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it
    :raises ConfigError: if the sink holds no receipts of that ledger, or already receipts of this one
    :raises LeaseBusyError: if a run holds the lease
    """
    assert action.ledger_id is not None
    result = adopt_other_ledger.adopt(
        context.setup(),
        action.ledger_id,
        actor=context.actor,
        reason=context.reason or "",
        dry_run=context.dry_run,
        proposal=context.proposal,
    )
    return {
        "pipeline": context.pipeline,
        "action": action.kind.value,
        "applied": result.applied,
        "dry_run": context.dry_run,
        "intent": None,
        "waits_for": None,
        "before": dict(result.before),
        "after": dict(result.after),
        "actor": context.actor,
        "reason": context.reason,
        "next": "the next run imports these receipts, and fences the other ledger's runs",
    }


def _describe_resend(action: Action) -> str:
    """Return a text that tells the user which records are sent again, parked or held after an acceptance or a move.

    :param action: the acceptance of the sink, or the move
    """
    if action.kind is ActionKind.MOVE:
        parts = ["the next run delivers to the sink that its declaration names, from the checkpoint on"]
    else:
        parts = [
            f"{name} is sent again from {'its beginning' if position == START else position} on"
            for name, position in sorted(action.positions.items())
        ]
        parts += [f"{span} of {name} is sent again" for name, span in action.ranges]
    if action.dead_letters:
        parts.append(
            f"{sum(item.records for item in action.dead_letters)} replayed dead letters are parked again; replay them"
        )
    if action.batches:
        names = ", ".join(map(str, action.batches))
        parts.append(f"{names}: held, since it is unknown whether they were delivered; release or skip them")
    return "; ".join(parts) or "runs continue from the checkpoint, and nothing is sent again"


def skip_batches(context: ActionContext, batches: Iterable[str]) -> dict[str, Any]:
    """Skip batches: their records are not delivered, and the checkpoint may pass them.

    A batch of which an attempt has begun may have been delivered. Its next attempt claims the verdict ``void`` in the
    sink, unless the sink already has a receipt of the batch, which then remains valid.

    :param context: ledger, pipeline, actor and reason of the action
    :param batches: names of the batches, such as ``orders-0#17``
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it
    :raises LedgerStateError: if the state of a batch does not allow it to be skipped
    """
    result = apply_in_ledger(context, Action(ActionKind.SKIP, parse_batch_keys(batches)))
    states = result["after"].get("batches", {})
    started = sorted(batch for batch, state in states.items() if state in (BatchState.PLANNED, BatchState.IN_FLIGHT))
    if started:
        result["next"] = (
            f"{', '.join(started)}: begun before, so the next attempt claims `void` in the sink; "
            "if it was delivered after all, its receipt remains"
        )
    return result


def act_on_dead_letters(
    context: ActionContext, kind: ActionKind, selection: Selection, query: str | None
) -> dict[str, Any]:
    """Replay or discard the parked dead letters of a selection.

    :param context: ledger, pipeline, actor and reason of the action
    :param kind: replay or discard
    :param selection: criteria for the dead letters, such as error types
    :param query: text that a dead letter must contain to be chosen; None to choose all that meet the criteria
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it;
        ``records`` is the number of dead letters, and 0 if none is chosen, so that nothing is done
    """
    action = dead_letters.make_action(context.setup(), kind, selection, query)
    if not action.dead_letters:
        result = empty_document(context, action)
    elif kind is ActionKind.REPLAY_DEAD_LETTERS:
        result = apply_behind_fence(context, action)
        if result["applied"]:
            result["next"] = "the next run sends them"
    else:
        result = apply_in_ledger(context, action)
    return result | {"records": sum(item.records for item in action.dead_letters)}
