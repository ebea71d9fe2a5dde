"""Asks every route of the page's API as every kind of user from every origin, under one of Airflow's auth managers.

``python -m tests.system.page.walk simple|fab LEDGER_URL ANSWERS`` builds Airflow's API server in this process, with
AIRFLOW_HOME and its settings from the environment, and writes the answers to a file as JSON. The routes are those of
the app, so that no new one is left out. Every request is one that is answered with 200 if the user may send it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow.api_fastapi.app import create_app, get_auth_manager, init_auth_manager
from airflow.models.dagbundle import DagBundleModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.team import Team
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.serialization.definitions.dag import SerializedDAG
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.routing import Mount

from airflow_provider_ckpt.dag_factories.recovery import recovery_dag
from tests.system.page.ledger_states import fill

TEAM = "sales"
BASE = "http://airflow.test"
USERS = ("anonymous", "viewer", "outsider", "user", "op", "admin")
"""``outsider`` is a user without the DAGs."""

ORIGINS: Mapping[str, Mapping[str, str]] = {
    "same": {"Origin": BASE, "Sec-Fetch-Site": "same-origin"},
    "foreign": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "sibling": {"Origin": "http://other.airflow.test", "Sec-Fetch-Site": "same-site"},
    "none": {},
    "bearer": {},
}
OTHERS = ("prices", "bare", "orphan", "unknown")
"""Pipelines of other states, of which one route to see and one to act is asked."""

_AT = "/api/pipelines/{pipeline}"
_REPRESENTATIVE = (_AT, f"{_AT}/actions/preview")
_BODIES: Mapping[str, Any] = {
    f"{_AT}/actions/preview": {"kind": "rewind", "to_position": "0"},
    f"{_AT}/dead-letters/records": {},
    f"{_AT}/dead-letters/export": {},
}
"""Valid body by route; that of an order is made from the answer to a dry run."""
_PASSWORD = "secret-of-a-test"


def make_dags() -> None:
    """Store the DAGs as the DAG processor does, in a bundle that belongs to a team."""
    dags = [recovery_dag(pipelines=["orders"])]
    for name in ("shop", "store"):
        with DAG(name, schedule=None) as dag:
            EmptyOperator(task_id="replicate")
        dags.append(dag)
    with create_session() as session:
        team = Team(name=TEAM)
        bundle = DagBundleModel(name="dags-folder")
        session.add_all([team, Team(name="others"), bundle])
        bundle.teams.append(team)
    lazy = [LazyDeserializedDAG.from_dag(dag) for dag in dags]
    with create_session() as session:
        SerializedDAG.bulk_write_to_db("dags-folder", None, lazy, session=session)
        session.flush()
        for item in lazy:
            SerializedDagModel.write_dag(item, bundle_name="dags-folder", session=session)


def simple_tokens() -> dict[str, str]:
    """Tokens of the users that the environment defines for the simple auth manager."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    roles = {"viewer": "VIEWER", "outsider": "USER", "user": "USER", "op": "OP", "admin": "ADMIN"}
    manager = get_auth_manager()
    return {
        name: manager.generate_jwt(
            SimpleAuthManagerUser(username=name, role=role, teams=["others" if name == "outsider" else TEAM])
        )
        for name, role in roles.items()
    }


def fab_tokens() -> dict[str, str]:
    """Make users with FAB's own roles, and one whose role names another DAG; return their tokens."""
    from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder

    with get_application_builder() as builder:
        manager = builder.sm
        manager.sync_roles()
        other = manager.add_role("Others")
        for action, resource in (("can_read", "DAG:elsewhere"), ("can_read", "DAG Runs"), ("can_edit", "DAG Runs")):
            manager.add_permission_to_role(other, manager.create_permission(action, resource))
        roles = {"viewer": "Viewer", "outsider": "Others", "user": "User", "op": "Op", "admin": "Admin"}
        tokens = {}
        for name, role in roles.items():
            user = manager.add_user(name, name, name, f"{name}@example.com", manager.find_role(role), _PASSWORD)
            tokens[name] = get_auth_manager().generate_jwt(user)
        return tokens


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Method and path of every route of the page's app, also of those that are mounted; static files are left out."""
    for route in app.routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods):
                yield method, route.path
        elif not (isinstance(route, Mount) and route.name == "ckpt_static"):
            yield "ANY", getattr(route, "path", repr(route))


class Walker:
    """Asks the API.

    :param client: client of the whole API server
    :param tokens: token by user
    """

    def __init__(self, client: TestClient, tokens: Mapping[str, str]) -> None:
        self._client = client
        self._tokens = tokens

    def ask(
        self, method: str, path: str, user: str, origin: str = "same", body: Any = None, content_type: str | None = None
    ) -> Any:
        """Send a request below ``/ckpt``: with the cookie as a browser does, or with a bearer token."""
        headers = dict(ORIGINS[origin])
        if user in self._tokens:
            token = self._tokens[user]
            headers |= {"Authorization": f"Bearer {token}"} if origin == "bearer" else {"Cookie": f"_token={token}"}
        elif origin == "bearer":
            headers["Authorization"] = "Bearer of-nothing"
        if method != "GET":
            headers["Content-Type"] = content_type or "application/json"
        content = None if method == "GET" else json.dumps({} if body is None else body)
        return self._client.request(method, f"/ckpt{path}", headers=headers, content=content)

    def body(self, template: str, pipeline: str, user: str) -> Any:
        """A body with which a request of a user who may send it is answered with 200, for the story as well."""
        if template != f"{_AT}/actions":
            return _BODIES.get(template)
        kind = "drain" if self._phase(pipeline) == "running" else "resume"
        preview = self.ask("POST", f"/api/pipelines/{pipeline}/actions/preview", user, body={"kind": kind})
        return {"id": preview.json()["id"] if preview.status_code == 200 else "0" * 16}

    def _phase(self, pipeline: str) -> str:
        return str(self.ask("GET", f"/api/pipelines/{pipeline}", "admin").json()["phase"])

    def matrix(self, app: FastAPI) -> list[dict[str, Any]]:
        """Ask every route as every user from every origin."""
        found = []
        for method, template in routes(app):
            others = OTHERS if template in _REPRESENTATIVE else ()
            for pipeline in ("orders", *others) if "{pipeline}" in template else ("",):
                path = template.replace("{pipeline}", pipeline) + (
                    "?name=t%2310" if template.endswith("/batch") else ""
                )
                for user in USERS:
                    for origin in ("same",) if pipeline in OTHERS else ORIGINS:
                        body = self.body(template, pipeline, user)
                        answer = self.ask(method, path, user, origin, body)
                        row = {"method": method, "route": template, "pipeline": pipeline, "user": user}
                        row |= {"origin": origin, "status": answer.status_code, "headers": dict(answer.headers)}
                        found.append(row)
        return found


def story(walker: Walker) -> dict[str, Any]:
    """From the list to an action: what each step answers."""
    at = "/api/pipelines/orders"
    records = f"{at}/dead-letters/records"
    steps: dict[str, Any] = {}

    def step(name: str, method: str, path: str, body: Any = None, user: str = "user", **more: Any) -> Any:
        answer = walker.ask(method, path, user, body=body, **more)
        is_json = "json" in answer.headers.get("content-type", "") and "ndjson" not in answer.headers["content-type"]
        content = answer.json() if is_json else answer.text
        steps[name] = {"status": answer.status_code, "headers": dict(answer.headers), "content": content}
        return content

    step("list", "GET", "/api/pipelines")
    step("detail", "GET", at)
    step("line", "GET", f"{at}/line")
    step("accounted", "GET", f"{at}/accounted")
    step("timeline", "GET", f"{at}/timeline")
    step("batches", "GET", f"{at}/batches?state=held")
    step("batch", "GET", f"{at}/batch?name=t%2310")
    step("events", "GET", f"{at}/events?kind=hold")
    step("groups", "GET", f"{at}/dead-letters/groups")
    step("dead letters", "GET", f"{at}/dead-letters")
    step("records", "POST", records, {})
    first = step("first record", "POST", records, {"limit": 1, "max_bytes": 4})
    step("second record", "POST", records, {"limit": 1, "cursor": first["next"]})
    step("found records", "POST", records, {"query": "script", "filter": {"types": ["Sink"]}})
    step("export", "POST", f"{at}/dead-letters/export", {})
    step("looks", "GET", f"{at}/events?kind=dead_letters_read&kind=dead_letters_exported&limit=200")
    step("actions", "GET", f"{at}/events?kind=drain&kind=resume&limit=200")
    step("bad cursor", "GET", f"{at}/events?cursor=x")
    step("form", "POST", f"{at}/actions", content_type="text/plain")
    preview = step("preview", "POST", f"{at}/actions/preview", {"kind": "release"})
    order = {"id": preview["id"], "reason": "the disk has room again"}
    step("of another user", "POST", f"{at}/actions", order, user="admin")
    step("for another pipeline", "POST", "/api/pipelines/prices/actions", order)
    step("done", "POST", f"{at}/actions", order)
    step("again", "POST", f"{at}/actions", order)
    first = step("skip", "POST", f"{at}/actions/preview", {"kind": "skip", "batches": ["t#10"]})
    step("without reason", "POST", f"{at}/actions", {"id": first["id"]})
    second = step("skip again", "POST", f"{at}/actions/preview", {"kind": "skip", "batches": ["t#10"]})
    step("older preview", "POST", f"{at}/actions", {"id": first["id"], "reason": "because"})
    step("rewind", "POST", f"{at}/actions/preview", {"kind": "rewind", "to_position": "50"})
    step("void", "POST", f"{at}/actions", {"id": second["id"], "reason": "because"})
    given_up = step("discard", "POST", f"{at}/actions/preview", {"kind": "discard_dead_letters", "dead_letters": {}})
    step("discarded", "POST", f"{at}/actions", {"id": given_up["id"], "reason": "test data"})
    step("useless field", "POST", f"{at}/actions/preview", {"kind": "drain", "batches": ["t#10"]})
    step("recover", "POST", f"{at}/actions/preview", {"kind": "recover"})
    step("proposals", "GET", f"{at}/proposals")
    step("after", "GET", f"{at}/batch?name=t%2310")
    step("list of outsider", "GET", "/api/pipelines", user="outsider")
    step("list of admin", "GET", "/api/pipelines", user="admin")
    step("of the DAG", "GET", "/api/pipelines?dag_id=store", user="admin")
    return steps


def main(manager: str, ledger_url: str, file: str) -> None:
    """Make everything, ask, and write the answers.

    :param manager: ``simple`` or ``fab``
    :param ledger_url: URL of a ledger that has the newest revision
    :param file: file for the answers; the sink is beside it
    """
    initdb()
    init_auth_manager()
    make_dags()
    fill(ledger_url, Path(file).parent)
    tokens: Callable[[], dict[str, str]] = simple_tokens if manager == "simple" else fab_tokens
    app = create_app(apps="core")
    mounted = [route.app for route in app.routes if isinstance(route, Mount) and route.path == "/ckpt"]
    page = mounted[0]
    assert isinstance(page, FastAPI)
    client = TestClient(app, base_url=BASE, raise_server_exceptions=False)
    walker = Walker(client, tokens())
    answers = {"matrix": walker.matrix(page), "story": story(walker), "openapi": page.openapi()}
    Path(file).write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
