"""Define the key of a batch, and the ids of side partitions.

The id of a side partition, such as ``dlq:3:orders``, contains its purpose, its generation and the id of the source
partition, so that these three are known without a query of the ledger.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class SideKind(StrEnum):
    """Purpose of a side partition, and the first part of its id.

    - ``recovery``: read ranges with missing records again
    - ``replay``: read a range again that a user names
    - ``dlq``: send dead letters again
    """

    RECOVERY = "recovery"
    REPLAY = "replay"
    DLQ = "dlq"


_SIDE_PARTITION = re.compile(rf"(?P<kind>{'|'.join(SideKind)}):(?P<generation>[0-9]+):(?P<source>.+)", re.DOTALL)


def side_partition(kind: SideKind, generation: int, source: str) -> str:
    """Return the id of a side partition, such as ``dlq:3:orders``.

    :param kind: the purpose of the side partition
    :param generation: the generation of the side partition
    :param source: the id of the source partition whose records it sends again
    """
    return f"{kind}:{generation}:{source}"


def side_kind(partition: str) -> SideKind | None:
    """Return the purpose of a side partition; None for a source partition."""
    found = _SIDE_PARTITION.match(partition)
    return SideKind(found["kind"]) if found else None


def side_generation(partition: str) -> int:
    """Return the generation that a side partition's id contains; 0 for a source partition."""
    found = _SIDE_PARTITION.match(partition)
    return int(found["generation"]) if found else 0


@dataclass(frozen=True, slots=True, order=True)
class BatchKey:
    """Key of a batch inside its pipeline.

    :param generation: number of the generation of the partition, from 1
    :param partition: the id of the source partition or side partition
    :param seq: number of the batch in its partition and generation, from 0; never reused
    """

    generation: int
    partition: str
    seq: int

    @property
    def is_side_partition(self) -> bool:
        """True if the batch belongs to a side partition, which sends records of a source partition again."""
        return side_kind(self.partition) is not None

    @property
    def is_replay(self) -> bool:
        """True if the batch replays dead letters; its positions then number dead letters instead of source records."""
        return side_kind(self.partition) is SideKind.DLQ

    @property
    def source(self) -> str:
        """The id of the source partition that the batch's records come from."""
        found = _SIDE_PARTITION.match(self.partition)
        return self.partition if found is None else found["source"]

    def __str__(self) -> str:
        return f"{self.partition}#{self.seq}" + (f"@{self.generation}" if self.generation > 1 else "")

    @classmethod
    def parse(cls, text: str, *, generation: int | None = None) -> BatchKey:
        """Return the key that a text names, written ``partition#seq`` or ``partition#seq@generation``.

        :param text: the text that a user wrote
        :param generation: the generation to use if the text names none; None stands for 1
        :raises ValueError: if the text has another form
        """
        found = re.fullmatch(r"(?P<partition>.+)#(?P<seq>[0-9]+)(?:@(?P<generation>[0-9]+))?", text, re.DOTALL)
        if found is None:
            raise ValueError(f"{text!r} is not a batch; write partition#seq, as `airflow ckpt status` shows it")
        return cls(int(found["generation"] or generation or 1), found["partition"], int(found["seq"]))

    def to_json(self) -> list[Any]:
        """Return the key as a JSON-ready list of generation, partition and seq; :meth:`from_json` is the inverse."""
        return [self.generation, self.partition, self.seq]

    @classmethod
    def from_json(cls, data: list[Any]) -> BatchKey:
        """Restore a key from the output of :meth:`to_json`."""
        return cls(int(data[0]), str(data[1]), int(data[2]))
