"""The DAG run that worked on a pipeline last: what Airflow calls it, and whether the ledger knows otherwise.

Marking a run in Airflow changes no ledger, so the two may disagree; then the ledger tells what is true.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.replication.owner import dag_run_of

log = logging.getLogger(__name__)

_UNDONE = (BatchState.PLANNED, BatchState.IN_FLIGHT)


def seen_by_airflow(status: dict[str, Any]) -> dict[str, Any] | None:
    """The DAG run that began batches last, JSON-ready; None if it was no DAG run that did.

    :param status: as the ledger tells it
    """
    found = dag_run_of(status["begun_by"])
    if found is None:
        return None
    dag_id, run_id = found
    state = _state(dag_id, run_id)
    return {"dag_id": dag_id, "run_id": run_id, "state": state, "disagrees": disagreement(state, status)}


def disagreement(state: str | None, status: dict[str, Any]) -> str | None:
    """What the ledger holds against the state of a DAG run, None if nothing.

    :param state: ``success`` or ``failed``; nothing is said of another
    """
    undone = [f"{status['batches'][name.value]} {name.value}" for name in _UNDONE if status["batches"].get(name.value)]
    if state == "success" and undone:
        return f"the DAG run is a success, but batches have no verdict: {', '.join(undone)}; the next run sends them"
    if state == "failed" and not undone and not status["held"]:
        return "the DAG run failed, but all that was planned has its verdict: there is nothing to repeat"
    return None


def _state(dag_id: str, run_id: str) -> str | None:
    """The state of a DAG run, None if Airflow does not know it (any more) or has no metadata database here."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with create_session() as session:
            known = select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
            state = session.scalar(known)
    except SQLAlchemyError as error:
        log.debug("Airflow's metadata database does not tell of DAG runs: %s", error)
        return None
    return None if state is None else str(state)
