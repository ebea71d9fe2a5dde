"""Rights of a user on pipelines, derived from their rights on the DAGs that have planned them.

Seeing takes the right to see runs of one of these DAGs, acting the right to edit runs of all of them. DAGs that Airflow
does not know count as none. A pipeline without any DAG is for administrators: those who may edit the ledger's
connection. Only they may delete what the ledger stores, which no later action brings back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException
from sqlalchemy import select

from airflow_provider_ckpt.api.guard import User
from airflow_provider_ckpt.api.ledgers import OpenedLedger
from airflow_provider_ckpt.ledger.queries.pipeline_tasks import PlannedPipeline, Tasks
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION

_AT_ONCE = 500
Method = Literal["GET", "PUT", "POST"]


class Access:
    """Rights of one user, looked up once per request.

    :param user: the user
    """

    def __init__(self, user: User) -> None:
        self.user = user
        self._teams: dict[str, str | None] = {}
        self._asked: set[str] = set()
        self._answers: dict[tuple[Method, str], bool] = {}

    @property
    def actor(self) -> str:
        """Name of the user as the audit log stores it."""
        return f"airflow:{self.user.get_name()}"

    @cached_property
    def is_administrator(self) -> bool:
        """True if the user may edit the connection of the ledger, and so could change everything in it."""
        details = ConnectionDetails(conn_id=DEFAULT_CONNECTION)
        return bool(get_auth_manager().is_authorized_connection(method="PUT", details=details, user=self.user))

    def load(self, dag_ids: Iterable[str]) -> None:
        """Read from Airflow's database which of some DAGs it knows, and their teams; each DAG is read only once.

        :param dag_ids: ids of the DAGs
        """
        wanted = sorted(set(dag_ids) - self._asked)
        if not wanted:
            return
        self._asked.update(wanted)
        is_multi_team = conf.getboolean("core", "multi_team", fallback=False)
        with create_session() as session:
            for at in range(0, len(wanted), _AT_ONCE):
                some = wanted[at : at + _AT_ONCE]
                known = session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(some)))
                self._teams.update(dict.fromkeys(known))
                if is_multi_team:
                    self._teams.update(DagModel.get_dag_id_to_team_name_mapping(some, session=session))

    def known(self, dag_ids: Iterable[str]) -> list[str]:
        """Return those of some DAGs that Airflow knows, sorted."""
        wanted = set(dag_ids)
        self.load(wanted)
        return sorted(wanted & self._teams.keys())

    def may(self, method: Method, dag_id: str) -> bool:
        """Return whether the user may see (GET), edit (PUT) or trigger (POST) runs of a DAG that Airflow knows.

        :param method: the right
        :param dag_id: id of the DAG
        """
        if not self.known([dag_id]):
            return False
        key = (method, dag_id)
        if key not in self._answers:
            self._answers[key] = get_auth_manager().is_authorized_dag(
                method=method,
                access_entity=DagAccessEntity.RUN,
                details=DagDetails(id=dag_id, team_name=self._teams[dag_id]),
                user=self.user,
            )
        return self._answers[key]

    def visible_dags(self, tasks: Tasks) -> list[str]:
        """Return those DAGs of some tasks whose runs the user may see, sorted."""
        return [dag_id for dag_id in self.known(dag_id for dag_id, _ in tasks) if self.may("GET", dag_id)]

    def may_see(self, tasks: Tasks) -> bool:
        """Return whether the user may see a pipeline, from the tasks that have planned it."""
        dags = self.known(dag_id for dag_id, _ in tasks)
        return any(self.may("GET", dag_id) for dag_id in dags) if dags else self.is_administrator

    def may_act(self, tasks: Tasks) -> bool:
        """Return whether the user may act on a pipeline and see the bytes of its dead letters.

        :param tasks: the tasks that have planned the pipeline
        """
        dags = self.known(dag_id for dag_id, _ in tasks)
        if not dags:
            return self.is_administrator
        return all(self.may("GET", dag_id) and self.may("PUT", dag_id) for dag_id in dags)

    def may_delete(self, tasks: Tasks) -> bool:
        """Return whether the user may delete a pipeline or its old history: an administrator who may act on it.

        :param tasks: the tasks that have planned the pipeline
        """
        return self.may_act(tasks) and self.is_administrator


def _access(user: User) -> Access:
    return Access(user)


AccessDep = Annotated[Access, Depends(_access)]


def no_such_pipeline(name: str) -> HTTPException:
    """Return the answer for a pipeline that does not exist or that the user may not see."""
    return HTTPException(404, f"There is no pipeline {name!r} that you may see.")


def _seen_pipeline(pipeline: str, ledger: OpenedLedger, access: AccessDep) -> PlannedPipeline:
    found = ledger.planned_pipeline(pipeline)
    if found is None or not access.may_see(found.tasks):
        raise no_such_pipeline(pipeline)
    return found


Seen = Annotated[PlannedPipeline, Depends(_seen_pipeline)]
"""Pipeline of the route's path, which the user may see; else the answer is 404, as for an unknown pipeline."""


def acted_pipeline(found: Seen, access: AccessDep) -> PlannedPipeline:
    """Return the pipeline of the route's path, on which the user may act.

    :raises HTTPException: with status 403 if the user may see it but not act on it
    """
    if not access.may_act(found.tasks):
        raise HTTPException(
            403,
            f"To act on pipeline {found.name!r} takes the right to edit the runs of every DAG that has run it: "
            f"{', '.join(access.visible_dags(found.tasks)) or 'there is none, so it is for administrators'}.",
        )
    return found


Acted = Annotated[PlannedPipeline, Depends(acted_pipeline)]
"""Pipeline of the route's path, on which the user may act; else the answer is 403."""
