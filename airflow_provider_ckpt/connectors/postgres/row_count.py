"""Counts the rows that a transaction really adds to a target, beside what the sink believes to have sent.

A trigger, a rule or a policy may swallow rows or add some, and COPY and INSERT tell nothing of what a trigger adds.
PostgreSQL's statistics of the running transaction do: they need no right to read the table, and no scan of it.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS_DIFFER = "CKR01"
"""SQLSTATE of the check that fails: of no class that the server uses."""

_BEFORE, _SENT = "ckpt.rows_before", "ckpt.rows_sent"
_COUNTERS = ("inserted", "updated", "deleted")


@dataclass(frozen=True, slots=True)
class RowCount:
    """SQL that counts a target's rows within one transaction; values are kept in settings local to it.

    Rows of its partitions and children are its own. Which those are is looked up at each count, because a trigger may
    make a child for the very rows that are counted.

    :param oid: of the target
    :param updates: whether a row that replaces another counts: for upserts
    """

    oid: int
    updates: bool

    @property
    def now(self) -> str:
        """SQL expression: a number that grows by one with each row that this session adds, or replaces."""
        inserted, updated, deleted = (f"pg_catalog.pg_stat_get_xact_tuples_{name}" for name in _COUNTERS)

        def of(relation: str) -> str:
            replaced = f" + {updated}({relation})" if self.updates else ""
            return f"{inserted}({relation}){replaced} - {deleted}({relation})"

        return (
            f"(WITH RECURSIVE ckpt_tree (relation) AS (SELECT {self.oid}::oid UNION SELECT i.inhrelid"
            " FROM pg_catalog.pg_inherits i JOIN ckpt_tree ON i.inhparent = ckpt_tree.relation)"
            f" SELECT sum({of('ckpt_tree.relation')})::bigint FROM ckpt_tree)"
        )

    def start(self, sent: int) -> str:
        """SQL calls, for a list of SELECT, that begin to count.

        :param sent: how many rows are sent; :meth:`sent` may correct it
        """
        return f"{_set(_BEFORE, self.now)}, {_set(_SENT, str(sent))}"

    def sent(self, number: str) -> str:
        """SQL call that says how many rows were sent.

        :param number: SQL expression
        """
        return _set(_SENT, number)

    def already(self, added: str) -> str:
        """SQL call that begins to count anew, with some rows that are known to be added.

        :param added: SQL expression
        """
        return _set(_BEFORE, f"{self.now} - {added}")

    @property
    def added(self) -> str:
        """SQL expression: the rows that were added since :meth:`start`."""
        return f"({self.now} - {_get(_BEFORE)})"

    @property
    def check(self) -> str:
        """Statement that fails with :data:`ROWS_DIFFER` and both numbers unless all rows that were sent were added."""
        message = "pg_catalog.format('%s rows were sent, and %s were added to the target', ckpt_sent, ckpt_added)"
        return (
            f"DO $ckpt$ DECLARE ckpt_sent bigint := {_get(_SENT)}; ckpt_added bigint := {self.added}; BEGIN"
            f" IF ckpt_added <> ckpt_sent THEN RAISE EXCEPTION USING ERRCODE = '{ROWS_DIFFER}', MESSAGE = {message};"
            " END IF; END $ckpt$"
        )


def _set(name: str, number: str) -> str:
    return f"pg_catalog.set_config('{name}', ({number})::text, true)"


def _get(name: str) -> str:
    return f"pg_catalog.current_setting('{name}')::bigint"
