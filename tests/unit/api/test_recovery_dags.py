"""The page finds the recovery DAGs of a pipeline among all DAGs with the tag, with few queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.serialized_dag import SerializedDagModel

from airflow_provider_ckpt.api import recovery_dags
from airflow_provider_ckpt.api.models.actions import ActionWish
from airflow_provider_ckpt.api.recovery_dags import recovery_forms

HIDDEN = "hidden"


class Rights:
    """A user who may see all DAGs but one; it notes which DAGs are looked up together."""

    def __init__(self) -> None:
        self.loaded: list[int] = []

    def load(self, dag_ids: Iterable[str]) -> None:
        self.loaded.append(len(set(dag_ids)))

    def may(self, method: str, dag_id: str) -> bool:
        assert self.loaded, "otherwise each DAG is a query of its own"
        return dag_id != HIDDEN and (method == "GET" or dag_id == "zz_care")


def form(*pipelines: str) -> dict[str, Any]:
    """A serialized DAG whose form offers the recovery of pipelines."""
    choices = {"pipeline": list(pipelines), "action": ["recover"]}
    return {"dag": {"params": [[name, {"schema": {"enum": values}}] for name, values in choices.items()]}}


def test_a_recovery_dag_is_found_behind_a_thousand_dags_of_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    dags: dict[str, Any] = {f"pipeline_{number}": {"dag": {"params": []}} for number in range(1000)}
    dags |= {"zz_care": form("orders", "visits"), "zz_other": form("visits"), HIDDEN: form("orders")}
    together: list[int] = []

    @contextmanager
    def session() -> Iterator[Any]:
        yield SimpleNamespace(execute=lambda query: limited(query, [(name, False) for name in dags]))

    def limited(query: Any, rows: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
        return rows if query._limit is None else rows[: query._limit]

    def latest(dag_ids: list[str], session: Any) -> list[Any]:
        del session
        together.append(len(dag_ids))
        return [SimpleNamespace(dag_id=name, data=dags[name]) for name in dag_ids]

    monkeypatch.setattr(recovery_dags, "create_session", session)
    monkeypatch.setattr(SerializedDagModel, "get_latest_serialized_dags", latest)
    access: Any = Rights()

    found = recovery_forms(access, "orders", ActionWish(kind="recover"))

    assert [(item.dag_id, item.may_trigger) for item in found] == [("zz_care", True)]
    assert access.loaded == [1003]
    assert max(together) <= 100
