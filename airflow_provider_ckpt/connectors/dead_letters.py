"""Read dead letters from a sink by their numbers in the ledger's index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from airflow_provider_ckpt.connectors.batch_content import KeptLetter
from airflow_provider_ckpt.connectors.protocols import Sink
from airflow_provider_ckpt.core.dead_letters import AttemptKey, Letters
from airflow_provider_ckpt.core.errors import SinkError


def kept(sink: Sink, wanted: Iterable[Letters]) -> Iterator[tuple[Letters, list[KeptLetter]]]:
    """Yield the stored dead letters of each run, in the order given. The sink is queried once for all attempts.

    :param sink: the sink that stores them
    :param wanted: runs of dead letters
    :raises SinkError: if the sink does not have all of them
    """
    groups = [(source, list(group)) for source, group in groupby(wanted, key=lambda letters: letters.source)]
    read = sink.letters([source for source, _ in groups])
    letter = next(read, None)
    for source, group in groups:
        by_type: dict[str, list[KeptLetter]] = {}
        while letter is not None and letter.source == source:
            by_type.setdefault(letter.letter.error.type.value, []).append(letter)
            letter = next(read, None)
        for letters in group:
            found = by_type.get(letters.error_type, [])[letters.first : letters.end]
            if len(found) != letters.records:
                raise SinkError(
                    f"the sink holds {len(found)} of {letters.records} dead letters of type {letters.error_type} "
                    "that its receipt counts.",
                    batch=str(source.key),
                    hint="Restore the sink's dead letters from a backup; discard those that cannot be restored.",
                )
            yield letters, found


def types_of(sink: Sink, sources: Collection[AttemptKey]) -> dict[AttemptKey, dict[str, int]]:
    """Return the number of dead letters by error type for each attempt, with one query for all attempts."""
    found: dict[AttemptKey, dict[str, int]] = {source: {} for source in sorted(sources)}
    for item in sink.letters(found):
        types, name = found[item.source], item.letter.error.type.value
        types[name] = types.get(name, 0) + 1
    return found
