"""Determine a user's rights on a pipeline from the user's rights on the DAGs that have planned the pipeline.

To see a pipeline, a user needs the right to see the runs of at least one of these DAGs; to act on it, the rights to see
and to edit the runs of all of them. DAGs that Airflow does not know are ignored. A pipeline without any DAG is for
administrators: users who may edit the ledger's connection. Only administrators may delete data of the ledger, since no
later action restores it.
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
from fastapi import Depends, HTTPException, Path
from sqlalchemy import select

from airflow_provider_ckpt.api.guard import User
from airflow_provider_ckpt.api.ledgers import OpenedLedger
from airflow_provider_ckpt.ledger.queries.pipeline_tasks import PlannedPipeline, Tasks
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION

_AT_ONCE = 500
Method = Literal["GET", "PUT", "POST"]


class Access:
    """Rights of one user on DAGs and pipelines, looked up once per request.

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
        """True if the user may edit the Airflow connection of the ledger."""
        details = ConnectionDetails(conn_id=DEFAULT_CONNECTION)
        return bool(get_auth_manager().is_authorized_connection(method="PUT", details=details, user=self.user))

    def load(self, dag_ids: Iterable[str]) -> None:
        """Look up which of the given DAGs Airflow knows, and their teams; each DAG is looked up only once.

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
        """Return the ids among the given ones that are ids of DAGs which Airflow knows, sorted.

        :param dag_ids: ids of DAGs
        """
        wanted = set(dag_ids)
        self.load(wanted)
        return sorted(wanted & self._teams.keys())

    def may(self, method: Method, dag_id: str) -> bool:
        """Return whether the user has a right on the runs of a DAG; False if Airflow does not know the DAG.

        :param method: the right: ``GET`` to see runs, ``PUT`` to edit runs, ``POST`` to trigger runs
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
        """Return the ids of the DAGs of the given tasks whose runs the user may see, sorted.

        :param tasks: tasks that have planned a pipeline, each as DAG id and task id
        """
        return [dag_id for dag_id in self.known(dag_id for dag_id, _ in tasks) if self.may("GET", dag_id)]

    def may_see(self, tasks: Tasks) -> bool:
        """Return whether the user may see a pipeline.

        :param tasks: tasks that have planned the pipeline, each as DAG id and task id
        """
        dags = self.known(dag_id for dag_id, _ in tasks)
        return any(self.may("GET", dag_id) for dag_id in dags) if dags else self.is_administrator

    def may_act(self, tasks: Tasks) -> bool:
        """Return whether the user may act on a pipeline and see the bytes of its dead letters.

        :param tasks: tasks that have planned the pipeline, each as DAG id and task id
        """
        dags = self.known(dag_id for dag_id, _ in tasks)
        if not dags:
            return self.is_administrator
        return all(self.may("GET", dag_id) and self.may("PUT", dag_id) for dag_id in dags)

    def may_delete(self, tasks: Tasks) -> bool:
        """Return whether the user may delete a pipeline or its history.

        Only an administrator who may act on the pipeline may delete it.

        :param tasks: tasks that have planned the pipeline, each as DAG id and task id
        """
        return self.may_act(tasks) and self.is_administrator


def _access(user: User) -> Access:
    return Access(user)


AccessDep = Annotated[Access, Depends(_access)]


def no_such_pipeline(name: str) -> HTTPException:
    """Return the HTTP error 404 for a pipeline that does not exist or that the user may not see.

    :param name: name of the pipeline
    """
    return HTTPException(404, f"There is no pipeline {name!r} that you may see.")


def _seen_pipeline(
    pipeline: Annotated[str, Path(description="name of the pipeline")], ledger: OpenedLedger, access: AccessDep
) -> PlannedPipeline:
    found = ledger.planned_pipeline(pipeline)
    if found is None or not access.may_see(found.tasks):
        raise no_such_pipeline(pipeline)
    return found


Seen = Annotated[PlannedPipeline, Depends(_seen_pipeline)]
"""Parameter of a route: the pipeline in the route's path, if the user may see it. Otherwise the answer is 404, as for
an unknown pipeline."""


def acted_pipeline(found: Seen, access: AccessDep) -> PlannedPipeline:
    """Return the pipeline in the route's path, if the user may act on it.

    :param found: the pipeline, which the user may see
    :param access: rights of the user
    :raises HTTPException: with status 403 if the user may see the pipeline but not act on it
    """
    if not access.may_act(found.tasks):
        raise HTTPException(
            403,
            f"To act on pipeline {found.name!r} takes the right to edit the runs of every DAG that has run it: "
            f"{', '.join(access.visible_dags(found.tasks)) or 'there is none, so it is for administrators'}.",
        )
    return found


Acted = Annotated[PlannedPipeline, Depends(acted_pipeline)]
"""Parameter of a route: the pipeline in the route's path, if the user may act on it. Otherwise the answer is 403, or
404 if the user may not even see the pipeline.
"""
