"""``airflow ckpt dlq list``, ``show``, ``export``, ``replay`` and ``discard``: commands for dead letters."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.output import write_document
from airflow_provider_ckpt.cli.request_action import action_context, write_result
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.dead_letters import UNDELIVERED, IndexEntry, newest_reread
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.replayable_dead_letters import Selection, take_first
from airflow_provider_ckpt.replication.actions.carry_out_action import act_on_dead_letters
from airflow_provider_ckpt.replication.actions.dead_letters import check_batches, export_document
from airflow_provider_ckpt.replication.actions.parse_arguments import parse_selection

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
    from airflow_provider_ckpt.ledger.commands.dead_letters import DeadLetterIndex
    from airflow_provider_ckpt.replication.setup import PipelineContext

_MAX_SHOWN = 100


@command(write_document)
def list_all(args: Namespace) -> dict[str, Any]:
    """Return the number of dead letters of ``args.pipeline`` by state, and index entries, JSON-ready.

    The numbers cover all dead letters. The command's options, such as ``--type``, select the index entries.
    """
    from airflow_provider_ckpt.cli.context import context_of
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.actions import dead_letters

    with open_ledger(args.ledger) as ledger:
        index = dead_letters.load_index(context_of(args, ledger))
    states: Counter[str] = Counter()
    for entry in index.entries:
        states[entry.state.value] += entry.dead_letters.records
    return {
        "pipeline": args.pipeline,
        "records": dict(states),
        "dead_letters": [
            _index_line(entry, index) for entry in _first_entries(_selected_entries(args, index), args.stop_at)
        ],
    }


def _first_entries(entries: list[IndexEntry], number: int | None) -> Iterator[IndexEntry]:
    """Yield the index entries of the first ``number`` dead letters; the last entry is shortened if necessary.

    :param entries: entries of the index, each for a group of consecutive dead letters
    :param number: number of dead letters, not of entries; None for all
    """
    chosen = take_first((entry.dead_letters for entry in entries), number)
    return (replace(entry, dead_letters=dead_letters) for entry, dead_letters in zip(entries, chosen, strict=False))


def _index_line(entry: IndexEntry, index: DeadLetterIndex) -> dict[str, Any]:
    return {
        "batch": str(entry.dead_letters.key),
        "error_type": entry.dead_letters.error_type,
        "records": entry.dead_letters.records,
        "state": entry.state.value,
        "replays": entry.replays,
        "replayed_by": entry.replay,
        "read_again_in": newest_reread(entry, index.rereads),
        "at": entry.at.isoformat(),
    }


def _table(result: dict[str, Any], out: TextIO) -> None:
    columns = ("batch", "position", "error_type", "sqlstate", "error", "state", "value")
    rows = [{name: line[name] for name in columns} for line in result["dead_letters"]]
    write_document({**result, "dead_letters": rows}, out)


@command(_table)
def show(args: Namespace) -> dict[str, Any]:
    """Return the dead letters that the command's options select, with their content, oldest first, JSON-ready.

    At most 100 are returned, unless ``--stop-at`` gives another number.
    """
    from airflow_provider_ckpt.cli.context import context_of
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        setup = context_of(args, ledger)
        lines = [
            export_document(entry, stored)
            for entry, stored in islice(_selected_with_content(args, setup), args.stop_at or _MAX_SHOWN)
        ]
    return {"pipeline": args.pipeline, "dead_letters": lines}


@command(write_document)
def export(args: Namespace) -> dict[str, Any]:
    """Write the dead letters that the command's options select to a new file, as JSON lines with bytes in base64.

    ``args.to`` is the path of the file, which only the current user can read.

    :return: the number of dead letters and the path of the file, JSON-ready
    :raises ConfigError: if the file exists, or cannot be created
    """
    from airflow_provider_ckpt.cli.context import context_of
    from airflow_provider_ckpt.ledger_location import open_ledger

    records = 0
    with open_ledger(args.ledger) as ledger:
        setup = context_of(args, ledger)
        found = _selected_with_content(args, setup)
        with _create_file(args.to) as file:
            for entry, stored in islice(found, args.stop_at):
                file.write(json.dumps(export_document(entry, stored), ensure_ascii=True) + "\n")
                records += 1
    return {"pipeline": args.pipeline, "file": args.to, "records": records}


@command(write_result)
def replay(args: Namespace) -> dict[str, Any]:
    """Have the next run send parked dead letters again: those that the command's options select.

    :return: the result of the action, JSON-ready; ``records`` is the number of selected dead letters, possibly 0
    """
    return _request(args, ActionKind.REPLAY_DEAD_LETTERS)


@command(write_result)
def discard(args: Namespace) -> dict[str, Any]:
    """Give up parked dead letters: mark those that the command's options select as discarded in the ledger's index.

    The dead letter store keeps their content.

    :return: the result of the action, JSON-ready; ``records`` is the number of selected dead letters, possibly 0
    :raises ConfigError: if the reason is missing
    """
    return _request(args, ActionKind.DISCARD_DEAD_LETTERS, required_by="dlq discard")


def _request(args: Namespace, kind: ActionKind, *, required_by: str | None = None) -> dict[str, Any]:
    with action_context(args, required_by=required_by) as context:
        return act_on_dead_letters(context, kind, _selection(args), args.query)


def _selection(args: Namespace) -> Selection:
    return parse_selection(args.type or (), args.batch or (), args.since, args.until, args.stop_at)


def _selected_entries(args: Namespace, index: DeadLetterIndex) -> list[IndexEntry]:
    """Return the index entries that the command's arguments select.

    Entries of dead letters that were replayed or discarded are left out, unless ``--all`` is given.

    :param args: the command's arguments
    :param index: the index of the pipeline's dead letters
    :raises ConfigError: if a batch that the arguments name has no dead letters in the index
    """
    chosen = _selection(args)
    check_batches(index, chosen, args.pipeline)
    return [entry for entry in index.entries if chosen.matches(entry) and (args.all or entry.state in UNDELIVERED)]


def _selected_with_content(args: Namespace, setup: PipelineContext) -> Iterator[tuple[IndexEntry, StoredDeadLetter]]:
    """Yield the dead letters that the command's arguments select, each with its index entry and stored content.

    :param args: the command's arguments
    :param setup: context of the pipeline, with which the dead letter store is read
    """
    from airflow_provider_ckpt.replication.actions import dead_letters

    for entry, stored in dead_letters.read_contents(setup, _selected_entries(args, dead_letters.load_index(setup))):
        if args.query is None or dead_letters.contains_text(stored, args.query):
            yield entry, stored


def _create_file(path: str) -> TextIO:
    """Create a text file that only the current user can read, because records may contain confidential data.

    :raises ConfigError: if the file exists, or cannot be created
    """
    try:
        return TextIOWrapper(private_files.create(Path(path)), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}.", hint="Name a file that does not exist yet."
        ) from error
