"""Witness of a planning, by which the next one detects that smaller positions were given out since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_ckpt.connectors.postgres.origin_tables import Origin


@dataclass(frozen=True, slots=True)
class Witness:
    """State of a table and its server at one planning.

    :param end: the end of its plan; every position below was given to a batch
    :param reached: whether a plan has ever reached the table's end; until then a declared start may lie ahead of it
    :param top: the greatest position in the table
    :param snapshot: of the server's transactions: which of them the planning could see
    :param xid: id of the next transaction
    :param timeline: of the server's write-ahead log, which a failover or a restore changes; None if it may not be seen
    :param log: the end of that log
    :param sequences: by oid: newest value, file, and whether the sequence was ever seen at or beyond the table's end
    :param files: by oid of a relation, the file that stores its rows
    :param branch: digest of the timeline's history, None if there is none or it may not be seen
    :param attached: by oid of a relation, the relations that it is a partition or heir of, and since when
    """

    end: int
    reached: bool
    top: int | None
    snapshot: str
    xid: int
    timeline: str | None
    log: str | None
    sequences: Mapping[int, tuple[int | None, int, bool]] = field(default_factory=dict)
    files: Mapping[int, int] = field(default_factory=dict)
    branch: str | None = None
    attached: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "end": self.end,
            "reached": self.reached,
            "top": self.top,
            "snapshot": self.snapshot,
            "xid": self.xid,
            "timeline": self.timeline,
            "log": self.log,
            "sequences": {str(oid): list(seen) for oid, seen in self.sequences.items()},
            "files": {str(oid): file for oid, file in self.files.items()},
            "branch": self.branch,
            "attached": {str(oid): list(links) for oid, links in self.attached.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Witness:
        """The witness that :meth:`to_json` wrote."""
        sequences = {int(oid): (seen[0], seen[1], seen[2]) for oid, seen in data["sequences"].items()}
        files = {int(oid): file for oid, file in data["files"].items()}
        attached = {int(oid): links for oid, links in data.get("attached", {}).items()}
        return cls(**{**data, "sequences": sequences, "files": files, "attached": attached})

    def same(self, other: Witness) -> bool:
        """Whether nothing has changed but transactions of other tables."""
        return self == replace(other, snapshot=self.snapshot, xid=self.xid, log=self.log)


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that shows that positions below the checkpoint were given out.

    :param seen: what was seen, as a sentence
    :param remedy: what is to be done first
    :param where: condition for the rows that it speaks of; None if positions that were read may have been given out
        again, so that the rows there tell nothing
    :param origin: relation that holds those rows; the whole table if None
    :param moved: whether these may be rows that were elsewhere in the table before, so that a receipt of the same
        position accounts for each
    """

    seen: str
    remedy: str = ""
    where: str | None = None
    origin: Origin | None = None
    moved: bool = False
