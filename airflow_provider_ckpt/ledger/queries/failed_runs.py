"""Query of the pipelines whose newest run has failed.

A run that ends with an error records it in the event ``lease_released``. It stays until a run ends without one: whoever
else releases a lease, such as a user's action or a task that is killed, records again what was known before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.ledger.store import tables

_P, _E = tables.pipeline.c, tables.event.c


@dataclass(frozen=True, slots=True)
class FailedRun:
    """Failure of the newest run of a pipeline.

    :param error: why it failed, with what to do
    :param since: when the first of the runs that failed one after the other ended
    """

    error: str
    since: datetime


def failed_runs(connection: Connection, prefix: str) -> dict[str, FailedRun]:
    """Return the failures of the pipelines whose newest run has failed, by name.

    :param connection: connection on a snapshot
    :param prefix: beginning of the pipelines' names
    """
    names = sa.select(_P.name, _newest_release().label("id")).where(_P.name.startswith(prefix, autoescape=True))
    newest = names.subquery("newest")
    query = sa.select(_E.pipeline, _E.detail).join(newest, _E.id == newest.c.id)
    found = {row.pipeline: _failed_run(row.detail) for row in connection.execute(query)}
    return {name: failed for name, failed in found.items() if failed is not None and name.startswith(prefix)}


def newest_failed_run(connection: Connection, pipeline: str) -> FailedRun | None:
    """Return the failure of the newest run of a pipeline; None if it did not fail.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    """
    newest = sa.select(_newest_release()).where(_P.name == pipeline).scalar_subquery()
    detail = connection.execute(sa.select(_E.detail).where(_E.id == newest)).scalar_one_or_none()
    return _failed_run(detail or {})


def detail_of_release(
    connection: Connection, pipeline: str, at: datetime, *, error: str | None, succeeded: bool
) -> dict[str, str]:
    """Return the detail of an event ``lease_released``.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param at: time of the event
    :param error: why a run failed; None if it is not a run that failed
    :param succeeded: whether a run ended without an error
    """
    if succeeded:
        return {}
    before = newest_failed_run(connection, pipeline)
    known = error or (before.error if before else None)
    return {"error": known, "since": (before.since if before else at).isoformat()} if known else {}


def _newest_release() -> sa.ScalarSelect[int]:
    """Return SQL for the id of the newest event of a released lease, of the pipeline that the outer query selects."""
    released = sa.and_(_E.pipeline == _P.name, _E.kind == "lease_released", sa.text(tables.MARKS))
    query = sa.select(_E.id).where(released).order_by(_E.at.desc(), _E.id.desc()).limit(1)
    return query.correlate(tables.pipeline).scalar_subquery()


def _failed_run(detail: Mapping[str, str]) -> FailedRun | None:
    return FailedRun(detail["error"], datetime.fromisoformat(detail["since"])) if "error" in detail else None
