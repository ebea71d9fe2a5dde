"""Fail a batch if the number of rows that the target gained differs from the number of rows that were sent.

A trigger, a rule or a policy can drop or add rows, and the row counts of COPY and INSERT do not include rows that a
trigger adds. PostgreSQL's statistics of the running transaction include them, and need neither a right to read the
table nor a scan. With ``sink.rows_may_differ: true``, ``writer.py`` does not make this check.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS_DIFFER = "CKR01"
"""SQLSTATE with which the check fails; the server itself uses no SQLSTATE of this class."""

_BEFORE, _SENT = "ckpt.rows_before", "ckpt.rows_sent"
_COUNTERS = ("inserted", "updated", "deleted")


@dataclass(frozen=True, slots=True)
class RowCounter:
    """Generator of the SQL that counts the rows that one transaction adds to a target.

    The counts are stored in session settings that end with the transaction. Rows of the target's partitions and
    children are included. These tables are looked up at each count, because a trigger may create one for the rows that
    are counted.

    :param oid: the target's oid
    :param updates: whether replaced rows are counted as well, for upserts
    """

    oid: int
    updates: bool

    @property
    def current(self) -> str:
        """SQL expression of a number that grows by one with each row that this session adds.

        With ``updates`` it also grows with each row that the session replaces.
        """
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
        """Return SQL function calls, for the list of a SELECT, that begin to count the rows added to the target.

        They store the server's present counters and the number of rows that are to be sent as settings of the
        transaction; :attr:`check` compares both at the end.

        :param sent: number of rows that are to be sent, as far as it is known; :meth:`set_sent` may correct it
        """
        return f"{_set_setting(_BEFORE, self.current)}, {_set_setting(_SENT, str(sent))}"

    def set_sent(self, number: str) -> str:
        """Return an SQL function call that sets the number of rows that were sent, with which :attr:`check` compares.

        :param number: SQL expression of the number
        """
        return _set_setting(_SENT, number)

    def restart(self, added: str) -> str:
        """Return an SQL function call that sets the number of rows added so far, from which the count goes on.

        :param added: SQL expression of the number
        """
        return _set_setting(_BEFORE, f"{self.current} - {added}")

    @property
    def added(self) -> str:
        """SQL expression of the number of rows that the transaction has added since :meth:`start`."""
        return f"({self.current} - {_get_setting(_BEFORE)})"

    @property
    def check(self) -> str:
        """SQL statement that fails unless the number of added rows equals the number of sent rows.

        It fails with the SQLSTATE :data:`ROWS_DIFFER` and a message with both numbers.
        """
        message = "pg_catalog.format('%s rows were sent, and %s were added to the target', ckpt_sent, ckpt_added)"
        return (
            f"DO $ckpt$ DECLARE ckpt_sent bigint := {_get_setting(_SENT)}; ckpt_added bigint := {self.added}; BEGIN"
            f" IF ckpt_added <> ckpt_sent THEN RAISE EXCEPTION USING ERRCODE = '{ROWS_DIFFER}', MESSAGE = {message};"
            " END IF; END $ckpt$"
        )


def _set_setting(name: str, number: str) -> str:
    return f"pg_catalog.set_config('{name}', ({number})::text, true)"


def _get_setting(name: str) -> str:
    return f"pg_catalog.current_setting('{name}')::bigint"
