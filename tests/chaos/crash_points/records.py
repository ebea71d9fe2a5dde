"""Create the records of a trial, each with the outcome that it must have whatever is killed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

PER_BATCH = 10
"""Records of each batch of a trial, where the source can count."""

SCHEMA = "id bigint, part int, kind int"
WHERE = "kind <> 2"
SELECT = {"id": "id", "part": "part", "kind": "cast(1 div kind as int)"}
"""Transform between source and sink: a bad record makes it divide by zero, or is no JSON at all."""


class Fate(IntEnum):
    """The expected outcome of a record; the number is its ``kind``."""

    DEAD_LETTERED = 0
    DELIVERED = 1
    FILTERED = 2


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    :param part: the source partition it is put into
    """

    id: int
    part: int
    fate: Fate

    def text(self, *, pad: int = 0) -> bytes:
        """Return the record as JSON; a bad one with an odd id is truncated.

        :param pad: bytes to add to a bad one
        """
        whole = json.dumps({"id": self.id, "part": self.part, "kind": int(self.fate)})
        if self.fate is not Fate.DEAD_LETTERED:
            return whole.encode()
        if pad:
            return json.dumps({"id": self.id, "part": self.part, "kind": 0, "pad": "x" * pad}).encode()
        return (whole[:-2] if self.id % 2 else whole).encode()


def draw(rng: random.Random, count: int, parts: int, *, filtered: bool) -> list[Record]:
    """Records with ids from 1.

    :param filtered: whether some are to be filtered
    """
    fates = [Fate.DELIVERED] * 16 + [Fate.DEAD_LETTERED] + [Fate.FILTERED if filtered else Fate.DELIVERED] * 3
    return [Record(number, rng.randrange(parts), rng.choice(fates)) for number in range(1, count + 1)]


def of_fate(records: Iterable[Record], fate: Fate) -> list[Record]:
    """Return the records with an outcome."""
    return [record for record in records if record.fate is fate]


def id_in(value: bytes | None) -> int:
    """The id in a dead letter's bytes, be they JSON or not; 0 if there is none."""
    found = re.search(rb'"id": ?(\d+)', value or b"")
    return int(found[1]) if found else 0


def by_part(rows: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Ids by source partition, in the given order.

    :param rows: source partition and id
    """
    found: dict[int, list[int]] = {}
    for part, number in rows:
        found.setdefault(part, []).append(number)
    return found


def places(records: Sequence[Record]) -> list[tuple[int, int]]:
    """Return source partition and id of each record."""
    return [(record.part, record.id) for record in records]
