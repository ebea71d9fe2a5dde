"""Read dead letters, and make the actions that replay or discard them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import KeptLetter
from airflow_provider_ckpt.connectors.dead_letters import kept, types_of
from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.core.dead_letters import UNTYPED, Entry, Letters, Selection, choose, first_of, runs_of
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.setup import Setup

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.commands.dead_letters import LetterIndex


def index(setup: Setup) -> LetterIndex:
    """Return the ledger's index of dead letters, after completing it with error types from the sink.

    :raises SinkError: if the sink is needed and cannot be read
    """
    found = setup.ledger.letters(setup.pipeline.name)
    untyped = {entry.letters.source for entry in found.entries if entry.letters.error_type == UNTYPED}
    if not untyped:
        return found
    with closing(setup.open_sink()) as sink:
        types = types_of(sink, untyped)
    setup.ledger.name_letter_types(setup.pipeline.name, types)
    return setup.ledger.letters(setup.pipeline.name)


def check_batches(found: LetterIndex, selection: Selection, pipeline: str) -> None:
    """Check that every batch of a selection has dead letters, in whatever state.

    :param found: the index
    :param selection: the selection
    :param pipeline: name of the pipeline, for the message
    :raises ConfigError: naming the batches that have none
    """
    strange = selection.batches - {entry.letters.key for entry in found.entries}
    if strange:
        names = ", ".join(str(key) for key in sorted(strange))
        raise ConfigError(
            f"there are no dead letters of {names}.",
            pipeline=pipeline,
            hint=f"See: airflow ckpt dlq list {pipeline} --all",
        )


def look(setup: Setup, entries: Iterable[Entry]) -> Iterator[tuple[Entry, KeptLetter]]:
    """Yield the dead letters of some entries with their contents, read from the sink."""
    by_letters = {entry.letters: entry for entry in entries}
    with closing(setup.open_sink()) as sink:
        for letters, found in kept(sink, sorted(by_letters, key=lambda item: (item.source, item))):
            for letter in found:
                yield by_letters[letters], letter


def matches(letter: KeptLetter, query: str) -> bool:
    """Return whether a dead letter's error, bytes or headers contain a text."""
    found = letter.letter
    wanted = query.encode("utf-8", "surrogateescape")
    texts = (found.error.message, *found.headers.values())
    return any(query in text for text in texts) or any(wanted in part for part in (found.key, found.value) if part)


def act_on(setup: Setup, kind: ActKind, selection: Selection, query: str | None = None) -> Act:
    """Return the action that replays or discards the parked dead letters of a selection; it may name none.

    Where rows replace rows by key, a replay begins with the newest dead letter: of two parked versions of a row, the
    newer one then finds the key absent.

    :param setup: the pipeline's setup
    :param kind: replay or discard
    :param selection: the dead letters
    :param query: only dead letters that contain this text, see :func:`matches`
    """
    found = index(setup)
    check_batches(found, selection, setup.pipeline.name)
    if query is None:
        chosen = choose(found.entries, selection, found.rereads)
    else:
        meant = choose(found.entries, replace(selection, stop_at=None), found.rereads)
        chosen = list(first_of(_matching(setup, meant, query), selection.stop_at))
    return Act(kind, letters=tuple(chosen), newest_first=setup.pipeline.sink.mode == "upsert")


def _matching(setup: Setup, meant: Iterable[Letters], query: str) -> Iterator[Letters]:
    with closing(setup.open_sink()) as sink:
        for letters, found in kept(sink, meant):
            numbered = enumerate(found, start=letters.first)
            yield from runs_of(letters, (number for number, letter in numbered if matches(letter, query)))
