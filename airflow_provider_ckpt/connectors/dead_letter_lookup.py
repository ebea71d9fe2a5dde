"""Read from a sink the dead letters that the ledger's index lists.

The index names a dead letter by the attempt that wrote it, its error type, and its number: the first dead letter of
that attempt and error type has the number 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.sink_protocol import Sink
from airflow_provider_ckpt.core.dead_letters import AttemptKey, DeadLetters
from airflow_provider_ckpt.core.errors import SinkError


def read_dead_letters(
    sink: Sink, wanted: Iterable[DeadLetters]
) -> Iterator[tuple[DeadLetters, list[StoredDeadLetter]]]:
    """Yield entries of the ledger's index, in the order given, each with its dead letters as the sink stores them.

    The sink is queried only once.

    :param sink: the sink that stores the dead letters
    :param wanted: entries of the index; entries of the same attempt must be adjacent
    :raises SinkError: if the sink has fewer dead letters of an attempt and error type than an entry requires
    """
    groups = [(source, list(group)) for source, group in groupby(wanted, key=lambda dead_letters: dead_letters.source)]
    read = sink.dead_letters([source for source, _ in groups])
    dead_letter = next(read, None)
    for source, group in groups:
        by_type: dict[str, list[StoredDeadLetter]] = {}
        while dead_letter is not None and dead_letter.source == source:
            by_type.setdefault(dead_letter.dead_letter.error.type.value, []).append(dead_letter)
            dead_letter = next(read, None)
        for dead_letters in group:
            found = by_type.get(dead_letters.error_type, [])[dead_letters.first : dead_letters.end]
            if len(found) != dead_letters.records:
                raise SinkError(
                    f"the batch's receipt counts {dead_letters.records} dead letters of type "
                    f"{dead_letters.error_type}, but the sink holds only {len(found)} of them.",
                    batch=str(source.key),
                    hint="Restore the sink's dead letters from a backup, or discard those that cannot be restored with "
                    "`airflow ckpt dlq discard`.",
                )
            yield dead_letters, found


def count_by_error_type(sink: Sink, sources: Collection[AttemptKey]) -> dict[AttemptKey, dict[str, int]]:
    """Return the number of stored dead letters by error type, for each attempt. The sink is queried only once.

    :param sink: the sink that stores the dead letters
    :param sources: attempts whose dead letters are counted; an attempt without dead letters gets an empty dict
    """
    found: dict[AttemptKey, dict[str, int]] = {source: {} for source in sorted(sources)}
    for item in sink.dead_letters(found):
        types, name = found[item.source], item.dead_letter.error.type.value
        types[name] = types.get(name, 0) + 1
    return found
