"""Witness of a planning, by which the next one detects that smaller positions were given out since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_ckpt.connectors.postgres.origin_tables import Origin


@dataclass(frozen=True, slots=True)
class Witness:
    """State of a table and its server at one planning.

    :param end: end of the plan; all positions below it belong to batches
    :param reached: whether a plan has ever reached the table's end; before that, the declared start may be beyond it
    :param top: the greatest position in the table
    :param snapshot: snapshot of the server's transactions, with those that the planning could see
    :param xid: id of the next transaction
    :param timeline: timeline of the server's write-ahead log, which a failover or a restore changes; None if the user
        may not read it
    :param log: end of that log (LSN)
    :param sequences: by oid: newest value, file, and whether the sequence was ever at or beyond the table's end
    :param files: number of the file that stores a relation's rows, by the relation's oid
    :param branch: digest of the timeline's history; None if there is none or the user may not read it
    :param attached: parents of a relation and the transactions that attached it, by the relation's oid; see
        :class:`~.origin_tables.Origin`
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
        """Return a JSON-ready dict; :meth:`from_json` is its inverse."""
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
        """Return the witness that :meth:`to_json` wrote."""
        sequences = {int(oid): (seen[0], seen[1], seen[2]) for oid, seen in data["sequences"].items()}
        files = {int(oid): file for oid, file in data["files"].items()}
        attached = {int(oid): links for oid, links in data.get("attached", {}).items()}
        return cls(**{**data, "sequences": sequences, "files": files, "attached": attached})

    def is_equivalent(self, other: Witness) -> bool:
        """Return whether nothing but transaction ids and the end of the log has changed."""
        return self == replace(other, snapshot=self.snapshot, xid=self.xid, log=self.log)


@dataclass(frozen=True, slots=True)
class LateRowSign:
    """Sign that positions below the checkpoint were assigned since the last planning.

    :param description: the observation, as a sentence
    :param correction: the correction that must come first, as an imperative; may be empty
    :param condition: SQL condition of the late rows; None if positions that were read may have been assigned again, so
        that late rows cannot be identified
    :param origin: relation that contains those rows; None for the whole table
    :param moved: whether the rows may have been in another relation of the table before; then each is accounted for if
        its position has a receipt
    """

    description: str
    correction: str = ""
    condition: str | None = None
    origin: Origin | None = None
    moved: bool = False
