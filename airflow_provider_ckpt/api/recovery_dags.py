"""Find the recovery DAGs that can act on a pipeline, and fill in the form with which they are triggered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.models.dag import DagModel, DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_ckpt.api.access import Access
from airflow_provider_ckpt.api.models.actions import ActionWish, RecoveryForm

_TAG = "ckpt"
_FIELDS = ("partition", "to_position", "to_time", "ledger_id")
_AT_ONCE = 100
"""Number of serialized DAGs that are loaded at once."""


def recovery_forms(access: Access, pipeline: str, wish: ActionWish) -> list[RecoveryForm]:
    """Return the recovery DAGs that the user may see and that offer an action on a pipeline, with filled-in forms.

    A recovery DAG is recognised by its tag and its form, which offers the pipeline and the action.

    :param access: rights of the user
    :param pipeline: name of the pipeline
    :param wish: the action
    """
    conf: dict[str, Any] = {"pipeline": pipeline, "action": wish.kind}
    given = wish.model_dump(mode="json", include=set(_FIELDS), exclude_none=True)
    conf |= given | ({"to_position": wish.to_position} if wish.to_position is not None else {})
    conf |= {"batches": wish.batches} if wish.batches else {}
    with create_session() as session:
        tagged = select(DagModel.dag_id, DagModel.is_paused).join(DagTag, DagTag.dag_id == DagModel.dag_id)
        rows = session.execute(tagged.where(DagTag.name == _TAG, DagModel.is_stale.is_(False)))
        paused = {dag_id: bool(is_paused) for dag_id, is_paused in rows}
    access.load(paused)
    visible = [dag_id for dag_id in sorted(paused) if access.may("GET", dag_id)]
    offering = []
    for at in range(0, len(visible), _AT_ONCE):
        with create_session() as session:
            documents = SerializedDagModel.get_latest_serialized_dags(
                dag_ids=visible[at : at + _AT_ONCE], session=session
            )
            offering += [item.dag_id for item in documents if _offers(item.data or {}, pipeline, wish.kind)]
    return [
        RecoveryForm(
            dag_id=dag_id,
            conf=conf,
            href=f"dags/{dag_id}",
            may_trigger=access.may("POST", dag_id),
            is_paused=paused[dag_id],
        )
        for dag_id in sorted(offering)
    ]


def _offers(document: Mapping[str, Any], pipeline: str, action: str) -> bool:
    """Return whether the form of a serialized DAG offers a pipeline and an action.

    :param document: the serialized DAG
    :param pipeline: name of the pipeline
    :param action: name of the action
    """
    params = {}
    for name, param in document.get("dag", {}).get("params", ()):
        schema = param.get("schema", {})
        params[name] = schema.get("__var", schema)
    return pipeline in params.get("pipeline", {}).get("enum", ()) and action in params.get("action", {}).get("enum", ())
