"""Snapshot of a source: the state of a table and its server that each planning stores in the ledger.

The next planning compares the snapshot with the state at that time, to detect rows that have appeared since at
positions which were planned already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_ckpt.connectors.postgres.origin_tables import Origin


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """Snapshot of a source: the state of a table and its server at one planning.

    :param end: end of the plan; all positions below it belong to batches
    :param reached: whether a plan of this generation has ever reached the table's greatest position; before that, the
        position from which the user started may be beyond all rows
    :param top: the greatest position in the table; None if it was empty
    :param transactions: snapshot of the server's transactions (``txid_snapshot``), as text; it tells which transactions
        the planning could see
    :param xid: id of the next transaction
    :param timeline: timeline of the server's write-ahead log, which a failover or a restore changes; None if the user
        may not read it
    :param log: end of that log (LSN); None if the user may not read it
    :param sequences: for each sequence that fills the cursor, by oid: its newest value, the number of its file, and
        whether it was ever at or beyond the table's greatest position
    :param files: number of the file that stores a relation's rows, by the relation's oid
    :param branch: digest of the history of the timeline; None if there is none or the user may not read it
    :param attached: parents of a relation and the transactions that attached it, by the relation's oid; see
        :class:`~.origin_tables.Origin`
    """

    end: int
    reached: bool
    top: int | None
    transactions: str
    xid: int
    timeline: str | None
    log: str | None
    sequences: Mapping[int, tuple[int | None, int, bool]] = field(default_factory=dict)
    files: Mapping[int, int] = field(default_factory=dict)
    branch: str | None = None
    attached: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return this object as a JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "end": self.end,
            "reached": self.reached,
            "top": self.top,
            "transactions": self.transactions,
            "xid": self.xid,
            "timeline": self.timeline,
            "log": self.log,
            "sequences": {str(oid): list(seen) for oid, seen in self.sequences.items()},
            "files": {str(oid): file for oid, file in self.files.items()},
            "branch": self.branch,
            "attached": {str(oid): list(links) for oid, links in self.attached.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceSnapshot:
        """Restore a snapshot from the output of :meth:`to_json`."""
        sequences = {int(oid): (seen[0], seen[1], seen[2]) for oid, seen in data["sequences"].items()}
        files = {int(oid): file for oid, file in data["files"].items()}
        attached = {int(oid): links for oid, links in data.get("attached", {}).items()}
        return cls(**{**data, "sequences": sequences, "files": files, "attached": attached})

    def is_equivalent(self, other: SourceSnapshot) -> bool:
        """Return whether two snapshots of a source are the same except for transaction ids and the end of the log.

        :param other: the snapshot to compare this one with
        """
        return self == replace(other, transactions=self.transactions, xid=self.xid, log=self.log)


@dataclass(frozen=True, slots=True)
class LateRowSign:
    """Sign that rows have got positions below the end of the last plan since it was made, or would soon get them.

    :param description: the observation, as a sentence
    :param correction: what the user must correct before these rows are read, as an imperative; empty if nothing
    :param condition: SQL condition of the late rows; None if they cannot be identified, since positions that were read
        may have been assigned again
    :param origin: relation that contains the late rows; None for the source table or view as a whole
    :param moved: whether the rows may have been read before, in another relation of the table; a row whose position has
        a receipt is then not late
    """

    description: str
    correction: str = ""
    condition: str | None = None
    origin: Origin | None = None
    moved: bool = False
