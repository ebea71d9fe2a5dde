"""Turn a user's request into one concrete action, which can be previewed, approved and then carried out unchanged.

The batches, positions, ranges or dead letters of the action are determined once, when it is proposed. An approved
action is either carried out exactly as it was proposed, or refused because the pipeline has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from airflow_provider_ckpt.core.action import NEED_RECEIPTS_READ, SINK_ACTIONS, Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.replication.actions import accept_schema, accept_sink, dead_letters
from airflow_provider_ckpt.replication.actions.carry_out_action import (
    ActionContext,
    adopt_receipts,
    apply_behind_fence,
    apply_in_ledger,
    change_sink,
    force_stop,
    preview_sink_change,
    skip_batches,
)
from airflow_provider_ckpt.replication.actions.parse_arguments import parse_batch_keys, parse_selection
from airflow_provider_ckpt.replication.actions.recover import find_unaccounted
from airflow_provider_ckpt.replication.actions.rewind_target import RewindTarget, resolve_positions

_MAX_DEAD_LETTER_RANGES = 5_000
"""Maximum number of dead letter ranges in a proposal, which travels by XCom and so is stored in Airflow's database."""


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """Request for an action; fields that its kind does not take must be None or empty.

    :param action: kind of the action, one of :data:`REQUESTABLE`
    :param partition: for rewind and resend, the source partition; None if the pipeline has only one, or, together with
        ``to_time``, for all of them
    :param to_position: for rewind and resend, the first position to read again
    :param to_time: for rewind, the time (ISO 8601) whose checkpoint to return to
    :param batches: for release, skip and replay, names of batches; for release and replay, none means all
    :param error_types: for replay, only dead letters of these types
    :param stop_at: for replay, maximum number of dead letters; None for no limit
    :param ledger_id: for adopt, id of the ledger whose receipts the sink has
    """

    action: ActionKind
    partition: str | None = None
    to_position: int | None = None
    to_time: str | None = None
    batches: tuple[str, ...] = ()
    error_types: tuple[str, ...] = ()
    stop_at: int | None = None
    ledger_id: str | None = None


_FIELDS_TAKEN: Mapping[ActionKind, frozenset[str]] = {
    ActionKind.RECOVER: frozenset(),
    ActionKind.REWIND: frozenset({"partition", "to_position", "to_time"}),
    ActionKind.REPLAY_DEAD_LETTERS: frozenset({"batches", "error_types", "stop_at"}),
    ActionKind.RELEASE: frozenset({"batches"}),
    ActionKind.SKIP: frozenset({"batches"}),
    ActionKind.FORCE_STOP: frozenset(),
    ActionKind.RESUME: frozenset(),
    ActionKind.RESEND_TO_SINK: frozenset({"partition", "to_position"}),
    ActionKind.KEEP_SINK: frozenset(),
    ActionKind.MOVE: frozenset(),
    ActionKind.ADOPT: frozenset({"ledger_id"}),
    ActionKind.ACCEPT_SCHEMA: frozenset(),
}


REQUESTABLE = tuple(_FIELDS_TAKEN)
"""Kinds of actions that can be requested, in the order in which a form for users lists them."""


@dataclass(frozen=True, slots=True)
class ProposedAction:
    """Action that fulfils a request, and the problems that it leaves open.

    :param action: the action; None if there is nothing to do
    :param open: for a recovery, two lists: ``left``, ranges with records that remain unread, and ``alarms``, alarms of
        the source that the action does not end
    """

    action: Action | None
    open: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)


def propose(context: ActionContext, request: ActionRequest) -> ProposedAction:
    """Return the action that fulfils a request, and change nothing.

    The action names the batches, positions, ranges or dead letters that it concerns.

    :param context: ledger, pipeline, actor and reason of the action
    :param request: the request
    :raises ConfigError: if a field was given that the action does not take, or a required one is missing
    """
    given = {
        item.name for item in fields(request) if item.name != "action" and getattr(request, item.name) not in (None, ())
    }
    if useless := sorted(given - _FIELDS_TAKEN[request.action]):
        raise ConfigError(
            f"{request.action} does not take {', '.join(useless)}.",
            pipeline=context.pipeline,
            hint="Leave that empty, or choose another action.",
        )
    if request.action is ActionKind.RECOVER:
        unaccounted = find_unaccounted(context.setup())
        return ProposedAction(unaccounted.action, unaccounted.open())
    return ProposedAction(_ACTION_MAKERS[request.action](context, request))


def preview(context: ActionContext, action: Action) -> dict[str, Any]:
    """Return what an action would change, and change nothing.

    :param context: ledger, pipeline, actor and reason of the action
    :param action: the action
    :return: result document of a dry run, a JSON-ready dict with the state before the action and the state after it
    :raises LedgerStateError: if the state of the pipeline or of a batch does not allow the action
    """
    if action.kind is ActionKind.ADOPT:
        return adopt_receipts(replace(context, dry_run=True), action)
    look = preview_sink_change if action.kind in SINK_ACTIONS else apply_in_ledger
    found = look(replace(context, dry_run=True), action)
    return found | ({"waits_for": None} if action.kind in SINK_ACTIONS | {ActionKind.FORCE_STOP} else {})


def carry_out(context: ActionContext, action: Action) -> dict[str, Any]:
    """Carry out an action, or store it for the run that holds the lease.

    :param context: ledger, pipeline, actor and reason of the action
    :param action: the action
    :return: result document, a JSON-ready dict: whether the action was applied, and the state before and after it
    :raises LedgerStateError: if the state of the pipeline or of a batch no longer allows the action; nothing was
        changed then
    """
    if action.kind is ActionKind.ADOPT:
        return adopt_receipts(context, action)
    if action.kind is ActionKind.FORCE_STOP:
        return force_stop(context)
    if action.kind in SINK_ACTIONS:
        return change_sink(context, action)
    if action.kind in NEED_RECEIPTS_READ:
        return apply_behind_fence(context, action)
    if action.kind is ActionKind.SKIP:
        return skip_batches(context, map(str, action.batches))
    return apply_in_ledger(context, action)


def _rewind(context: ActionContext, request: ActionRequest) -> Action:
    """Return the rewind of the requested partition to the requested position or time.

    :param context: ledger and pipeline
    :param request: the request
    :raises ConfigError: if the request has neither position nor time, has both, or no position can be determined
    """
    target = RewindTarget(position=request.to_position, time=request.to_time)
    return Action(ActionKind.REWIND, positions=resolve_positions(context, target, request.partition))


def _replay(context: ActionContext, request: ActionRequest) -> Action | None:
    """Return the replay of the requested dead letters; None if none of them are parked.

    :param context: ledger and pipeline
    :param request: the request
    :raises ConfigError: if the dead letters are in more than 5,000 ranges
    """
    chosen = parse_selection(request.error_types, request.batches, None, None, request.stop_at)
    action = dead_letters.make_action(context.setup(), ActionKind.REPLAY_DEAD_LETTERS, chosen)
    if len(action.dead_letters) > _MAX_DEAD_LETTER_RANGES:
        raise ConfigError(
            f"{len(action.dead_letters):,} ranges of dead letters are more than an approval can "
            f"name, {_MAX_DEAD_LETTER_RANGES:,}.",
            pipeline=context.pipeline,
            hint="Choose fewer by error type or batch, or with stop_at; or use airflow ckpt dlq replay.",
        )
    return action if action.dead_letters else None


def _release(context: ActionContext, request: ActionRequest) -> Action | None:
    """Return the release of the requested batches, or of all held batches if none are named; None if no batch is held.

    :param context: ledger and pipeline
    :param request: the request
    """
    keys = parse_batch_keys(request.batches) or _held_batches(context)
    return Action(ActionKind.RELEASE, keys) if keys else None


def _skip(context: ActionContext, request: ActionRequest) -> Action:
    if not request.batches:
        raise ConfigError("name the batches to skip.", pipeline=context.pipeline)
    return Action(ActionKind.SKIP, parse_batch_keys(request.batches))


def _force_stop(_: ActionContext, __: ActionRequest) -> Action:
    return Action(ActionKind.FORCE_STOP)


def _resume(context: ActionContext, _: ActionRequest) -> Action | None:
    """Return the action that resumes the pipeline; None if it is running."""
    phase = context.ledger.status(context.pipeline)["phase"]
    return None if phase == Phase.RUNNING else Action(ActionKind.RESUME)


def _resend(context: ActionContext, request: ActionRequest) -> Action:
    """Return the action ``resend_to_sink``: accept a changed sink, so that runs send its lost records again.

    :param context: ledger and pipeline
    :param request: the request, which may name the first position to send again
    :raises LedgerStateError: if the sink has not changed
    :raises ConfigError: if it is another sink than the pipeline delivered to, or the lost records cannot be sent again
    """
    start = {}
    if request.to_position is not None:
        start = resolve_positions(context, RewindTarget(position=request.to_position), request.partition)
    return accept_sink.make_acceptance(context.setup(), resend=True, start=start)


def _keep_sink(context: ActionContext, _: ActionRequest) -> Action:
    """Return the action ``keep_sink``: accept a changed sink, so that runs continue from the checkpoint.

    :raises LedgerStateError: if the sink has not changed
    :raises ConfigError: if it is another sink than the pipeline delivered to
    """
    return accept_sink.make_acceptance(context.setup(), resend=False)


def _move(context: ActionContext, _: ActionRequest) -> Action:
    return accept_sink.make_move(context.setup())


def _adopt(context: ActionContext, request: ActionRequest) -> Action:
    """Return the action ``adopt``, by which this ledger takes over the receipts of the requested ledger.

    :raises ConfigError: if no ledger is named
    """
    if request.ledger_id is None:
        raise ConfigError("name the ledger whose receipts to adopt.", pipeline=context.pipeline)
    return Action(ActionKind.ADOPT, ledger_id=request.ledger_id)


def _accept_schema(context: ActionContext, _: ActionRequest) -> Action:
    """Return the action ``accept_schema``: accept the columns that the source has now.

    :param context: ledger and pipeline
    :raises LedgerStateError: if there is nothing to accept, or these columns are accepted already
    """
    setup = context.setup()
    action = accept_schema.make_acceptance(setup)
    accept_schema.refuse_other_columns(setup, action, action.fingerprint)
    return action


def _held_batches(context: ActionContext) -> tuple[BatchKey, ...]:
    """Return the keys of all batches that are held now, for a release of all held batches.

    The release names these batches, so that it does not release batches which are held only after the approval.

    :param context: ledger and pipeline
    """
    blocking = context.ledger.inspect(context.pipeline)["batches"]
    return parse_batch_keys(batch["batch"] for batch in blocking if batch["state"] == BatchState.HELD)


_ACTION_MAKERS: Mapping[ActionKind, Callable[[ActionContext, ActionRequest], Action | None]] = {
    ActionKind.REWIND: _rewind,
    ActionKind.REPLAY_DEAD_LETTERS: _replay,
    ActionKind.RELEASE: _release,
    ActionKind.SKIP: _skip,
    ActionKind.FORCE_STOP: _force_stop,
    ActionKind.RESUME: _resume,
    ActionKind.RESEND_TO_SINK: _resend,
    ActionKind.KEEP_SINK: _keep_sink,
    ActionKind.MOVE: _move,
    ActionKind.ADOPT: _adopt,
    ActionKind.ACCEPT_SCHEMA: _accept_schema,
}
