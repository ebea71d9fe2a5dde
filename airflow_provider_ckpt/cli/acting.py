"""What all commands share by which a person changes a pipeline: carry the act out, and say what became of it.

While a run holds the lease the act is stored; whoever holds the lease applies it, and the answer names them.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.person import who
from airflow_provider_ckpt.core.acts import BEHIND_FENCE, Act
from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.records import ActResult


def batch_keys(texts: Iterable[str]) -> tuple[BatchKey, ...]:
    """The batches that a person named.

    :raises ConfigError: if one is no batch's name
    """
    try:
        return tuple(BatchKey.parse(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def act(args: Namespace, act: Act, *, why: str | None) -> dict[str, Any]:
    """Have the ledger carry an act out, or store it for the holder of the lease; then say which.

    :raises LedgerStateError: if it does not fit
    """
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        return act_in(ledger, args, act, why=why)


def act_in(ledger: Ledger, args: Namespace, act: Act, *, why: str | None) -> dict[str, Any]:
    """As :func:`act`, in a ledger that is open."""
    from airflow_provider_ckpt.replication.owner import is_dead

    try:
        result = ledger.act(args.pipeline, act, who=who(), why=why, is_dead=is_dead, dry_run=args.dry_run)
    except LedgerStateError as refusal:
        refusal.hint = refusal.hint or f"See: airflow ckpt inspect {args.pipeline}"
        raise
    return document(ledger, args, result, why=why)


def document(ledger: Ledger, args: Namespace, result: ActResult, *, why: str | None) -> dict[str, Any]:
    """What became of an act, JSON-ready.

    ``waits_for`` is the lease's holder, where the act is stored or, in a dry run, would be.
    """
    from airflow_provider_ckpt.replication.owner import is_held

    lease = ledger.status(args.pipeline)["lease"]
    waits = result.intent is not None or (args.dry_run and is_held(lease))
    return {
        "pipeline": args.pipeline,
        "act": result.act.kind.value,
        "applied": result.applied,
        "dry_run": args.dry_run,
        "intent": result.intent,
        "waits_for": {name: lease[name] for name in ("owner", "epoch", "expires")} if waits else None,
        "before": dict(result.before),
        "after": dict(result.after),
        "who": who(),
        "reason": why,
        "next": None,
    }


def waiting(ledger: Ledger, pipeline: str) -> list[dict[str, Any]]:
    """What people asked for and nobody has applied yet, oldest first."""
    return [
        {
            "intent": intent.id,
            "act": intent.act.kind.value,
            "who": intent.who,
            "reason": intent.why,
            "stored": intent.stored_at.isoformat(),
        }
        for intent in ledger.intents(pipeline)
    ]


def table(result: dict[str, Any], out: TextIO) -> None:
    """The same for a person: what happened, and each thing before and after."""
    rows: list[tuple[str, Any]] = [("pipeline", result["pipeline"]), ("act", result["act"]), ("done", _done(result))]
    if result["reason"]:
        rows.append(("reason", result["reason"]))
    if result["next"]:
        rows.append(("next", result["next"]))
    write_table(rows, out)
    changes = list(_changes(result["before"], result["after"]))
    if changes:
        write_table(changes, out, ("", "before", "after"))


def _done(result: dict[str, Any]) -> str:
    holder = result["waits_for"]
    if result["dry_run"]:
        return f"no, a dry run; it would wait for {holder['owner']}" if holder else "no, a dry run"
    if result["applied"]:
        return "yes"
    owner = f"{holder['owner']}, epoch {holder['epoch']}" if holder["owner"] else "a run that has ended by now"
    if result["act"] in BEHIND_FENCE:
        return f"stored as number {result['intent']}; the next run applies it, after {owner}"
    return f"stored as number {result['intent']}; applied by the run that holds the lease: {owner}"


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterable[tuple[str, str, str]]:
    """One row a thing that an act is about; ``checkpoint`` holds generation and position."""
    if not before:
        return
    for name in ("phase", "held"):
        if before[name] != after[name]:
            yield name, str(before[name]), str(after[name])
    letters = [before.get("dead_letters", {}), after.get("dead_letters", {})]
    for state in sorted({*letters[0], *letters[1]}):
        yield f"dead letters {state.replace('_', ' ')}", str(letters[0].get(state, 0)), str(letters[1].get(state, 0))
    for batch, state in before["batches"].items():
        yield batch, state or "-", after["batches"][batch] or "below the checkpoint"
    for name, was in before["checkpoint"].items():
        now = after["checkpoint"][name]
        yield f"checkpoint of {name}", f"{was[1]} (generation {was[0]})", f"{now[1]} (generation {now[0]})"
