"""``airflow ckpt dlq list``, ``show``, ``export``, ``replay`` and ``discard``: show dead letters and act on them."""

from __future__ import annotations

import base64
import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.actions import errand, table
from airflow_provider_ckpt.cli.output import write_document
from airflow_provider_ckpt.cli.runner import command
from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.actions import ActKind
from airflow_provider_ckpt.core.dead_letters import UNDELIVERED, Entry, Selection, first_of, read_again
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.actions.actions import on_letters, selection
from airflow_provider_ckpt.replication.actions.dead_letters import check_batches

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.batch_content import KeptLetter
    from airflow_provider_ckpt.ledger.commands.dead_letters import LetterIndex
    from airflow_provider_ckpt.replication.setup import Setup

_SHOWN = 100


@command(write_document)
def list_all(args: Namespace) -> dict[str, Any]:
    """Return the index of dead letters: number and state by batch and error type."""
    from airflow_provider_ckpt.cli.open import setup_of
    from airflow_provider_ckpt.ledger_location import open_ledger
    from airflow_provider_ckpt.replication.actions import dead_letters

    with open_ledger(args.ledger) as ledger:
        index = dead_letters.index(setup_of(args, ledger))
    states: Counter[str] = Counter()
    for entry in index.entries:
        states[entry.state.value] += entry.letters.records
    return {
        "pipeline": args.pipeline,
        "records": dict(states),
        "dead_letters": [_line(entry, index) for entry in _first(_meant(args, index), args.stop_at)],
    }


def _first(entries: list[Entry], number: int | None) -> Iterator[Entry]:
    """Return the entries of the first ``number`` dead letters."""
    chosen = first_of((entry.letters for entry in entries), number)
    return (replace(entry, letters=letters) for entry, letters in zip(entries, chosen, strict=False))


def _line(entry: Entry, index: LetterIndex) -> dict[str, Any]:
    return {
        "batch": str(entry.letters.key),
        "error_type": entry.letters.error_type,
        "records": entry.letters.records,
        "state": entry.state.value,
        "replays": entry.replays,
        "replayed_by": entry.replay,
        "read_again_in": read_again(entry, index.rereads),
        "at": entry.at.isoformat(),
    }


def _table(result: dict[str, Any], out: TextIO) -> None:
    brief = ("batch", "position", "error_type", "sqlstate", "error", "state", "value")
    rows = [{name: line[name] for name in brief} for line in result["dead_letters"]]
    write_document({**result, "dead_letters": rows}, out)


@command(_table)
def show(args: Namespace) -> dict[str, Any]:
    """Return the dead letters with their content, oldest first."""
    from airflow_provider_ckpt.cli.open import setup_of
    from airflow_provider_ckpt.ledger_location import open_ledger

    with open_ledger(args.ledger) as ledger:
        setup = setup_of(args, ledger)
        lines = [_letter(entry, kept) for entry, kept in islice(_found(args, setup), args.stop_at or _SHOWN)]
    return {"pipeline": args.pipeline, "dead_letters": lines}


@command(write_document)
def export(args: Namespace) -> dict[str, Any]:
    """Write dead letters to a file, as JSON lines with their bytes in base64."""
    from airflow_provider_ckpt.cli.open import setup_of
    from airflow_provider_ckpt.ledger_location import open_ledger

    records = 0
    with open_ledger(args.ledger) as ledger:
        setup = setup_of(args, ledger)
        found = _found(args, setup)
        with _new_file(args.to) as file:
            for entry, kept in islice(found, args.stop_at):
                file.write(json.dumps(_letter(entry, kept), ensure_ascii=True) + "\n")
                records += 1
    return {"pipeline": args.pipeline, "file": args.to, "records": records}


@command(table)
def replay(args: Namespace) -> dict[str, Any]:
    """Request a replay of dead letters, by the next run or the one that holds the lease."""
    return _acted(args, ActKind.REPLAY_LETTERS)


@command(table)
def discard(args: Namespace) -> dict[str, Any]:
    """Mark dead letters as discarded; the sink still stores them."""
    return _acted(args, ActKind.DISCARD_LETTERS, required_by="dlq discard")


def _acted(args: Namespace, kind: ActKind, *, required_by: str | None = None) -> dict[str, Any]:
    with errand(args, required_by=required_by) as asked:
        return on_letters(asked, kind, _selection(args), args.query)


def _selection(args: Namespace) -> Selection:
    return selection(args.type or (), args.batch or (), args.since, args.until, args.stop_at)


def _meant(args: Namespace, index: LetterIndex) -> list[Entry]:
    """Return the selected entries that are neither replayed nor discarded; with ``--all`` all selected entries."""
    chosen = _selection(args)
    check_batches(index, chosen, args.pipeline)
    return [entry for entry in index.entries if chosen.names(entry) and (args.all or entry.state in UNDELIVERED)]


def _found(args: Namespace, setup: Setup) -> Iterator[tuple[Entry, KeptLetter]]:
    """Yield the selected dead letters with their content from the sink."""
    from airflow_provider_ckpt.replication.actions import dead_letters

    for entry, kept in dead_letters.look(setup, _meant(args, dead_letters.index(setup))):
        if args.query is None or dead_letters.matches(kept, args.query):
            yield entry, kept


def _letter(entry: Entry, kept: KeptLetter) -> dict[str, Any]:
    letter = kept.letter
    return {
        "batch": str(kept.source.key),
        "position": letter.position,
        "error_type": letter.error.type.value,
        "sqlstate": letter.error.sqlstate,
        "error": letter.error.message,
        "state": entry.state.value,
        "replays": entry.replays,
        "at": kept.at.isoformat(),
        "headers": dict(letter.headers),
        "key": _text(letter.key),
        "key_base64": _base64(letter.key),
        "value": _text(letter.value),
        "value_base64": _base64(letter.value),
    }


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _new_file(path: str) -> TextIO:
    """Create a file that only the current user can read, because records may contain anything.

    :raises ConfigError: if it exists, or cannot be created
    """
    try:
        return TextIOWrapper(private_files.create(Path(path)), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}.", hint="Name a file that does not exist yet."
        ) from error
