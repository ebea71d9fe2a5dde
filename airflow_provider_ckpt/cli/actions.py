"""What all commands share by which a person changes a pipeline: carry the act out, and say what became of it.

While a run holds the lease the act is stored; whoever holds the lease applies it, and the answer names them.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.identity import who, why
from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.core.actions import BEHIND_FENCE, Act
from airflow_provider_ckpt.replication.actions.actions import Errand, changes, in_ledger

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger


@contextmanager
def errand(args: Namespace, *, required_by: str | None = None) -> Iterator[Errand]:
    """What a command that changes a pipeline works on, the ledger open.

    :param required_by: what asks for a reason, where it is not optional
    """
    from airflow_provider_ckpt.cli.open import setup_of
    from airflow_provider_ckpt.ledger_location import open_ledger

    reason = why(args, required_by=required_by)
    with open_ledger(args.ledger) as ledger:
        yield Errand(ledger, args.pipeline, partial(setup_of, args, ledger), who(), reason, args.dry_run)


def act(args: Namespace, act: Act) -> dict[str, Any]:
    """Have the ledger carry an act out, or store it for the holder of the lease; then say which.

    :raises LedgerStateError: if it does not fit
    """
    with errand(args) as asked:
        return in_ledger(asked, act)


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
    changed = list(changes(result["before"], result["after"]))
    if changed:
        write_table(changed, out, ("", "before", "after"))


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
