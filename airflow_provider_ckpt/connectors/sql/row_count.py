"""Fail a batch if the number of rows that the server reports as stored differs from the number of rows sent."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.sql.columns import Table
from airflow_provider_ckpt.connectors.sql.row_writer import Written
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import SinkError

ROWS_DIFFER = "CKR01"
"""SQLSTATE of the error if the server took more or fewer rows than were sent; no server uses its class, ``CK``."""


def refuse_other_row_count(written: Written, target: Table, key: BatchKey) -> None:
    """Raise an error if the target took more or fewer rows than were sent, so that nothing of the batch is committed.

    :param written: numbers of rows that were sent and taken
    :param target: the target
    :param key: the batch
    :raises SinkError: with both numbers
    """
    if written.taken != written.sent:
        raise SinkError(
            f"{written.sent} rows were sent, and the server has taken {written.taken}: a trigger of {target.label} "
            "drops or adds rows.",
            batch=str(key),
            sqlstate=ROWS_DIFFER,
            hint="Change the trigger or, if this is intended, write sink.rows_may_differ: true.",
        )
