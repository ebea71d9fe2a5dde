"""Store and load the error of each pipeline's newest run, if that run failed.

The error remains until a run succeeds; users' actions and tasks that are killed leave it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.ledger.store import tables

MAX_ERROR_CHARACTERS = 4000
"""Maximum number of stored characters of an error, since a driver's error may quote a whole statement."""

_P = tables.pipeline.c


@dataclass(frozen=True, slots=True)
class FailedRun:
    """Failure of the newest run of a pipeline.

    :param error: the error with its hint
    :param since: time at which the first of the consecutive failed runs ended
    """

    error: str
    since: datetime


def shortened(error: str) -> str:
    """Return the text of an error, cut to :data:`MAX_ERROR_CHARACTERS`."""
    return error[:MAX_ERROR_CHARACTERS]


def load_failures(connection: Connection, prefix: str) -> dict[str, FailedRun]:
    """Return the failures of the pipelines whose newest run has failed, by name of the pipeline.

    :param connection: connection whose transaction reads one snapshot
    :param prefix: beginning of the names of the pipelines to look at; empty for all
    """
    query = sa.select(_P.name, _P.failure, _P.failed_since).where(
        _P.failure.is_not(None), _P.name.startswith(prefix, autoescape=True)
    )
    found = {row.name: FailedRun(row.failure, row.failed_since) for row in connection.execute(query)}
    return {name: failed for name, failed in found.items() if name.startswith(prefix)}  # SQLite ignores case


def store_failure(connection: Connection, pipeline: str, error: str, at: datetime) -> bool:
    """Store the error with which the newest run of a pipeline has failed.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param error: the error, which is cut to :data:`MAX_ERROR_CHARACTERS`
    :param at: when the run ended
    :return: True if the stored error has changed; False if it is the same, or the ledger does not know the pipeline
    """
    error = shortened(error)
    changed = tables.pipeline.update().where(_P.name == pipeline, _P.failure.is_distinct_from(error))
    since = sa.func.coalesce(_P.failed_since, sa.bindparam("at", at, tables.UtcTime))
    return connection.execute(changed.values(failure=error, failed_since=since)).rowcount > 0


def delete_failure(connection: Connection, pipeline: str) -> None:
    """Delete the stored error of a pipeline, because a run has succeeded.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    """
    failed = tables.pipeline.update().where(_P.name == pipeline, _P.failure.is_not(None))
    connection.execute(failed.values(failure=None, failed_since=None))
