"""``airflow ckpt inspect PIPELINE [BATCH]``: show one batch, one partition, or all unresolved batches."""

from __future__ import annotations

import difflib
from argparse import Namespace
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.output import write_document
from airflow_provider_ckpt.cli.request_action import stored_actions
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.actions.parse_arguments import parse_batch_keys

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger


def _table(result: dict[str, Any], out: TextIO) -> None:
    document = {name: value for name, value in result.items() if name not in ("events", "batches")}
    document["batches"] = [_brief(batch) for batch in result.get("batches", [])]
    document["events"] = [
        {"at": event["at"], "event": event["kind"], "actor": event["actor"]} for event in result.get("events", [])
    ]
    write_document({name: value for name, value in document.items() if value not in ([], {})}, out)


def _brief(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a batch that a table of batches shows, by column.

    The columns are key, state, range, attempts, round, instruction, earliest start and error message.
    """
    shown = {name: batch[name] for name in ("batch", "state", "range", "attempts", "round", "instruction")}
    return shown | {"not before": batch["not_before"], "error": (batch["error"] or {}).get("message")}


@command(_table)
def inspect(args: Namespace) -> dict[str, Any]:
    """Return the details of the batch or partition ``args.what``, JSON-ready.

    If ``args.what`` is None, return the details of all unresolved batches, and the stored actions.

    :raises ConfigError: if ``args.what`` is neither the id of a partition nor the name of a batch
    :raises LedgerStateError: if there is no such batch
    """
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        if args.what is None:
            return {**ledger.inspect(args.pipeline), "intents": stored_actions(ledger, args.pipeline)}
        return _partition_or_batch(ledger, args.pipeline, args.what)


def _partition_or_batch(ledger: Ledger, pipeline: str, what: str) -> dict[str, Any]:
    """Return the details of the partition, or else of the batch, that has a given name, JSON-ready.

    Partitions are searched first, because a partition's name may look like a batch's.

    :param ledger: the ledger
    :param pipeline: the pipeline's name
    :param what: a partition's id, or a batch as ``partition#seq``
    :raises ConfigError: if no partition has this id, and ``what`` does not have the form of a batch's name
    :raises LedgerStateError: if there is no such batch
    """
    known = [part["id"] for part in ledger.status(pipeline)["partitions"]]
    if what in known:
        return ledger.inspect(pipeline, what)
    try:
        (key,) = parse_batch_keys([what])
    except ConfigError as error:
        near = difflib.get_close_matches(what, known, n=3, cutoff=0.5) or known[:10]
        error.hint = f"Or name a partition: {', '.join(near) or 'none yet'}."
        error.pipeline = pipeline
        raise
    return ledger.inspect(pipeline, key)
