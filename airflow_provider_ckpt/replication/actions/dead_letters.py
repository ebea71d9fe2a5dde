"""Read dead letters, and make the actions that replay or discard them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.dead_letter_lookup import count_by_error_type, read_dead_letters
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.dead_letters import UNKNOWN_TYPE, DeadLetters, IndexEntry
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.replayable_dead_letters import Selection, select, select_numbers, take_first
from airflow_provider_ckpt.replication.setup import PipelineContext

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.commands.dead_letters import DeadLetterIndex


def load_index(setup: PipelineContext) -> DeadLetterIndex:
    """Return the ledger's index of dead letters, after completing unknown error types from the sink.

    The index does not know the error types of dead letters that the ledger knows only from an imported receipt.

    :param setup: the pipeline with its ledger and connections
    :raises SinkError: if error types are missing and the sink cannot be read
    """
    found = setup.ledger.dead_letter_index(setup.pipeline.name)
    untyped = {entry.dead_letters.source for entry in found.entries if entry.dead_letters.error_type == UNKNOWN_TYPE}
    if not untyped:
        return found
    with closing(setup.open_sink()) as sink:
        types = count_by_error_type(sink, untyped)
    setup.ledger.set_error_types(setup.pipeline.name, types)
    return setup.ledger.dead_letter_index(setup.pipeline.name)


def check_batches(found: DeadLetterIndex, selection: Selection, pipeline: str) -> None:
    """Raise an error if a selection names batches that have no dead letters, not even replayed or discarded ones.

    :param found: the index of dead letters
    :param selection: the selection
    :param pipeline: name of the pipeline, for the message
    :raises ConfigError: if there are such batches; the error names them
    """
    strange = selection.batches - {entry.dead_letters.key for entry in found.entries}
    if strange:
        names = ", ".join(str(key) for key in sorted(strange))
        raise ConfigError(
            f"there are no dead letters of {names}.",
            pipeline=pipeline,
            hint=f"See: airflow ckpt dlq list {pipeline} --all",
        )


def read_contents(
    setup: PipelineContext, entries: Iterable[IndexEntry]
) -> Iterator[tuple[IndexEntry, StoredDeadLetter]]:
    """Read the dead letters of index entries from the sink, and yield each with its entry.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param entries: entries of the ledger's index; an entry stands for one or more dead letters
    """
    by_letters = {entry.dead_letters: entry for entry in entries}
    with closing(setup.open_sink()) as sink:
        for dead_letters, found in read_dead_letters(sink, sorted(by_letters, key=lambda item: (item.source, item))):
            for dead_letter in found:
                yield by_letters[dead_letters], dead_letter


def contains_text(dead_letter: StoredDeadLetter, query: str) -> bool:
    """Return whether the error message, the key, the value or a header's value of a dead letter contains a text.

    :param dead_letter: the dead letter
    :param query: the text, with upper and lower case as it must occur
    """
    found = dead_letter.dead_letter
    wanted = query.encode("utf-8", "surrogateescape")
    texts = (found.error.message, *found.headers.values())
    return any(query in text for text in texts) or any(wanted in part for part in (found.key, found.value) if part)


def export_document(entry: IndexEntry, stored: StoredDeadLetter) -> dict[str, Any]:
    """Return a dead letter as a JSON-ready dict: batch, position, error, state, replays, time, headers, original bytes.

    The bytes of key and value are given in base64, and also as text if they are UTF-8.

    :param entry: entry of the ledger's index for the dead letter
    :param stored: the dead letter
    """
    dead_letter = stored.dead_letter
    return {
        "batch": str(stored.source.key),
        "position": dead_letter.position,
        "error_type": dead_letter.error.type.value,
        "sqlstate": dead_letter.error.sqlstate,
        "error": dead_letter.error.message,
        "state": entry.state.value,
        "replays": entry.replays,
        "at": stored.at.isoformat(),
        "headers": dict(dead_letter.headers),
        **dead_letter.content_texts(),
    }


def make_action(setup: PipelineContext, kind: ActionKind, selection: Selection, query: str | None = None) -> Action:
    """Return the action that replays or discards the parked dead letters of a selection, without carrying it out.

    If no dead letter is selected, the action's list of dead letters is empty.

    For an upsert sink, a replay sends the newest dead letter first. A replay writes only rows whose key the target
    lacks, so of two dead letters with the same key the newer one is written.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param kind: replay or discard
    :param selection: selection of dead letters
    :param query: text that a dead letter must contain to be chosen (see :func:`contains_text`); None for all
    :raises ConfigError: if the selection names a batch that has no dead letters
    """
    found = load_index(setup)
    check_batches(found, selection, setup.pipeline.name)
    if query is None:
        chosen = select(found.entries, selection, found.rereads)
    else:
        selected = select(found.entries, replace(selection, stop_at=None), found.rereads)
        chosen = list(take_first(_matching(setup, selected, query), selection.stop_at))
    return Action(kind, dead_letters=tuple(chosen), newest_first=setup.pipeline.sink.upserts)


def _matching(setup: PipelineContext, selected: Iterable[DeadLetters], query: str) -> Iterator[DeadLetters]:
    """Read the selected dead letters from the sink, and yield those that contain the text ``query``.

    :param setup: the pipeline with its ledger and connections
    :param selected: the selected dead letters
    :param query: the text
    """
    with closing(setup.open_sink()) as sink:
        for dead_letters, found in read_dead_letters(sink, selected):
            numbered = enumerate(found, start=dead_letters.first)
            yield from select_numbers(
                dead_letters, (number for number, dead_letter in numbered if contains_text(dead_letter, query))
            )
