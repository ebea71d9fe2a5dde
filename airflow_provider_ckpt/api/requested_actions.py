"""Turn a user's request into a concrete action. The dry run, the proposal and the execution use this same action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NoReturn

from airflow_provider_ckpt.api.models.actions import ActionName, ActionWish
from airflow_provider_ckpt.api.models.dead_letters import DeadLetterFilter
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.replayable_dead_letters import Selection, select
from airflow_provider_ckpt.ledger.queries.pages import BatchFilter
from airflow_provider_ckpt.replication.actions import ledger_commands
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext
from airflow_provider_ckpt.replication.actions.dead_letters import check_batches
from airflow_provider_ckpt.replication.actions.parse_arguments import parse_batch_keys
from airflow_provider_ckpt.replication.actions.rewind_target import RewindTarget, resolve_positions, source_partition
from airflow_provider_ckpt.replication.setup import stored_pipeline

MAX_BATCHES = 20_000
"""Maximum number of batches, and of ranges of dead letters, that one action names."""

NEED_SOURCE_OR_SINK: frozenset[ActionName] = frozenset(
    {"recover", "force_stop", "resend_to_sink", "keep_sink", "move", "adopt", "accept_schema"}
)
"""Actions that need source or sink. The API server does not carry them out; the recovery DAG does."""

_TAKEN: Mapping[ActionName, frozenset[str]] = {
    "hold": frozenset({"batches"}),
    "release": frozenset({"batches"}),
    "skip": frozenset({"batches"}),
    "drain": frozenset(),
    "stop": frozenset(),
    "resume": frozenset(),
    "rewind": frozenset({"partition", "to_position", "to_time"}),
    "replay": frozenset({"partition", "start", "end", "with_replayed"}),
    "replay_dead_letters": frozenset({"dead_letters", "stop_at"}),
    "discard_dead_letters": frozenset({"dead_letters", "stop_at"}),
    "recover": frozenset(),
    "force_stop": frozenset(),
    "resend_to_sink": frozenset({"partition", "to_position"}),
    "keep_sink": frozenset(),
    "move": frozenset(),
    "adopt": frozenset({"ledger_id"}),
    "accept_schema": frozenset(),
    "break_lease": frozenset(),
    "collect_garbage": frozenset({"keep_days"}),
    "delete_pipeline": frozenset(),
}


def check_fields(wish: ActionWish, pipeline: str) -> None:
    """Refuse a request with a field that its kind of action does not take, or an ``adopt`` without ``ledger_id``.

    :param wish: the request
    :param pipeline: name of the pipeline, for the message
    :raises ConfigError: if the request is refused; the message names the unexpected fields, or the missing field
    """
    defaults = ActionWish(kind=wish.kind)
    given = {name for name in ActionWish.model_fields if getattr(wish, name) != getattr(defaults, name)}
    if useless := sorted(given - _TAKEN[wish.kind]):
        raise ConfigError(f"{wish.kind} does not take {', '.join(useless)}.", pipeline=pipeline, hint="Leave it out.")
    if wish.kind == "adopt" and wish.ledger_id is None:
        raise ConfigError("name the ledger whose receipts to adopt.", pipeline=pipeline)


def make_action(context: ActionContext, wish: ActionWish) -> Action | None:
    """Return the action for a request, with the concrete batches, positions, ranges or dead letters that it affects.

    :param context: ledger, pipeline and actor
    :param wish: the request, of a kind that needs neither source nor sink
    :return: the action; None if there is nothing to do
    :raises ConfigError: if a field is missing, or names a batch, partition or position that does not exist
    """
    maker = _MAKERS.get(wish.kind)
    return Action(ActionKind(wish.kind)) if maker is None else maker(context, wish)


def no_setup() -> NoReturn:
    """Raise an error in place of opening source and sink, since the API server opens neither of them for an action.

    :raises ConfigError: always
    """
    raise ConfigError("this action needs source or sink.", hint="Use the recovery DAG.")


def _on_batches(context: ActionContext, wish: ActionWish) -> Action | None:
    """Return an action on batches; a release without batches names all batches that are held now.

    :param context: ledger, pipeline and actor
    :param wish: the request
    :raises ConfigError: if no batch is named, except for a release, or more than 20,000 are held
    """
    keys = parse_batch_keys(wish.batches)
    if not keys and wish.kind != "release":
        raise ConfigError(f"name the batches to {wish.kind}.", pipeline=context.pipeline)
    if not keys:
        held = BatchFilter(states=(BatchState.HELD.value,))
        found, _ = context.ledger.batch_page(context.pipeline, held, limit=MAX_BATCHES + 1)
        if len(found) > MAX_BATCHES:
            raise ConfigError(
                f"more than {MAX_BATCHES:,} batches are held.",
                pipeline=context.pipeline,
                hint="Release some by name, or all with `airflow ckpt release --all`.",
            )
        keys = tuple(batch.key for batch in found)
    return Action(ActionKind(wish.kind), keys) if keys else None


def _rewind(context: ActionContext, wish: ActionWish) -> Action:
    time = None if wish.to_time is None else wish.to_time.isoformat()
    target = RewindTarget(position=wish.to_position, time=time)
    return Action(ActionKind.REWIND, positions=resolve_positions(context, target, wish.partition))


def _replay(context: ActionContext, wish: ActionWish) -> Action:
    if wish.start is None or wish.end is None or wish.start >= wish.end:
        raise ConfigError("give start, and an end that is greater.", pipeline=context.pipeline)
    ranges = ((source_partition(context, wish.partition), Range(wish.start, wish.end)),)
    return Action(ActionKind.REPLAY, ranges=ranges, with_replayed=wish.with_replayed)


def _on_dead_letters(context: ActionContext, wish: ActionWish) -> Action | None:
    """Return an action on the parked dead letters of a selection; None if none of them is parked.

    :param context: ledger, pipeline and actor
    :param wish: the request
    :raises ConfigError: if the selection has more than 20,000 ranges, or names batches without dead letters
    """
    dead_letters = wish.dead_letters or DeadLetterFilter()
    keys = frozenset(parse_batch_keys(dead_letters.batches))
    chosen = Selection(frozenset(dead_letters.types), keys, dead_letters.since, dead_letters.until, wish.stop_at)
    index = context.ledger.dead_letter_index(context.pipeline)
    check_batches(index, chosen, context.pipeline)
    found = tuple(select(index.entries, chosen, index.rereads))
    if len(found) > MAX_BATCHES:
        raise ConfigError(
            f"{len(found):,} ranges of dead letters are more than one action can name, {MAX_BATCHES:,}.",
            pipeline=context.pipeline,
            hint="Choose fewer by error type, batch or time; or use airflow ckpt dlq.",
        )
    kind = ActionKind(wish.kind)
    upsert = kind is ActionKind.REPLAY_DEAD_LETTERS and _replaces_by_key(context)
    return Action(kind, dead_letters=found, newest_first=upsert) if found else None


def _replaces_by_key(context: ActionContext) -> bool:
    return stored_pipeline(context.ledger, context.pipeline, instead="the recovery DAG").sink.upserts


def _collect_garbage(context: ActionContext, wish: ActionWish) -> Action | None:
    if wish.keep_days is None:
        raise ConfigError("say for how many days history is kept.", pipeline=context.pipeline)
    return ledger_commands.collect_garbage(context, timedelta(days=wish.keep_days))


_MAKERS: Mapping[ActionName, Callable[[ActionContext, ActionWish], Action | None]] = {
    "hold": _on_batches,
    "release": _on_batches,
    "skip": _on_batches,
    "rewind": _rewind,
    "replay": _replay,
    "replay_dead_letters": _on_dead_letters,
    "discard_dead_letters": _on_dead_letters,
    "break_lease": lambda context, _: ledger_commands.break_lease(context),
    "collect_garbage": _collect_garbage,
    "delete_pipeline": lambda context, _: ledger_commands.delete_pipeline(context),
}
