"""Request every route of the page's API as every kind of user and from every origin, under an auth manager.

``python -m tests.system.page.walk simple|fab LEDGER_URL ANSWERS`` builds Airflow's API server in this process, with
AIRFLOW_HOME and its settings from the environment, and writes the answers to a file as JSON. The routes are those of
the app, so new routes are included. Each request would be answered with 200 if the user had the right to send it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
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

from airflow_provider_ckpt.core.errors import StaleEpochError
from airflow_provider_ckpt.core.task_lease_owner import of_task
from airflow_provider_ckpt.dag_factories.recovery import recovery_dag
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.system.page.ledger_states import HOSTILE, begin_refresh, fill, hold_publication

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
FROM_EVERY_ORIGIN = ("anonymous", "user")
"""Users who ask from every origin; the others ask as the page does, since the origin is judged without the user."""

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
        """Ask every route as every user, and from every origin."""
        found = []
        for method, template in routes(app):
            others = OTHERS if template in _REPRESENTATIVE else ()
            for pipeline in ("orders", *others) if "{pipeline}" in template else ("",):
                path = template.replace("{pipeline}", pipeline) + (
                    "?name=t%2310" if template.endswith("/batch") else ""
                )
                for user in USERS:
                    is_wide = pipeline not in OTHERS and user in FROM_EVERY_ORIGIN
                    for origin in ORIGINS if is_wide else ("same",):
                        body = self.body(template, pipeline, user)
                        answer = self.ask(method, path, user, origin, body)
                        row = {"method": method, "route": template, "pipeline": pipeline, "user": user}
                        row |= {"origin": origin, "status": answer.status_code, "headers": dict(answer.headers)}
                        found.append(row)
        return found

    def deletions(self) -> list[dict[str, Any]]:
        """Ask for the dry runs of what only administrators may do, as every user."""
        found = []
        for pipeline in ("orders", *OTHERS):
            for user in USERS:
                for wish in ({"kind": "delete_pipeline"}, {"kind": "collect_garbage", "keep_days": 1}):
                    answer = self.ask("POST", f"/api/pipelines/{pipeline}/actions/preview", user, body=wish)
                    found.append({"pipeline": pipeline, "user": user, "status": answer.status_code, **wish})
        return found


def story(walker: Walker, ledger: Ledger) -> dict[str, Any]:
    """From the list to an action: what each step answers.

    :param walker: asks the API
    :param ledger: the ledger, for what other processes do meanwhile
    """
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
    step("early line", "GET", f"{at}/line?partition=t&start=0&end=119")
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
    step("database", "GET", "/api/pipelines?database=shop&health=well")
    step("database of outsider", "GET", "/api/pipelines?database=shop", user="outsider")
    for at_page in ("first", "second"):
        cursor = steps["first page"]["content"]["next"] if at_page == "second" else ""
        step(f"{at_page} page", "GET", f"/api/pipelines?limit=2{cursor and '&cursor=' + cursor}")
    _refresh(step, ledger)
    _break_leases(step, ledger)
    _delete(step, ledger)
    step("adopt", "POST", f"{at}/actions/preview", {"kind": "adopt", "ledger_id": "5f0c0d52"})
    step("adopt of nothing", "POST", f"{at}/actions/preview", {"kind": "adopt"})
    return steps


def _refresh(step: Callable[..., Any], ledger: Ledger) -> None:
    """Begin a refresh, hold its publication, and release it."""
    at = "/api/pipelines/countries"
    driver = begin_refresh(ledger)
    step("staging", "GET", at)
    hold_publication(driver, f"it has no rows {HOSTILE}")
    step("held publication", "GET", at)
    step("held publication for a viewer", "GET", at, user="viewer")
    step("refresh of outsider", "GET", at, user="outsider")
    preview = step("release of the publication", "POST", f"{at}/actions/preview", {"kind": "release"})
    step("released publication", "POST", f"{at}/actions", {"id": preview["id"], "reason": "reviewed"})
    step("released", "GET", at)


def _break_leases(step: Callable[..., Any], ledger: Ledger) -> None:
    """Break a lease, and try to break one that was acquired anew since, and one that nobody holds."""
    at, wish = "/api/pipelines/prices/actions", {"kind": "break_lease"}
    run = of_task("shop", "manual__9", "prices", "replicate")
    step("free lease", "POST", f"{at}/preview", wish)
    held = ledger.acquire("prices", run, timedelta(hours=1))
    preview = step("lease", "POST", f"{at}/preview", wish)
    order = {"id": preview["id"], "reason": "its machine is gone"}
    step("lease without reason", "POST", at, {"id": preview["id"]})
    ledger.renew(held)
    step("broken", "POST", at, order)
    try:
        ledger.renew(held)
    except StaleEpochError as error:
        step("fenced", "GET", "/api/pipelines/prices")["refusal"] = str(error)
    step("broken again", "POST", at, order)
    held = ledger.acquire("prices", run, timedelta(hours=1))
    preview = step("second lease", "POST", f"{at}/preview", wish)
    held = ledger.acquire("prices", run, timedelta(hours=1))
    step("third lease", "POST", at, {"id": preview["id"], "reason": "its machine is gone"})
    ledger.renew(held)
    step("lease events", "GET", "/api/pipelines/prices/events?kind=lease_broken&kind=approved")


def _delete(step: Callable[..., Any], ledger: Ledger) -> None:
    """Delete old history of one pipeline, and another one altogether."""
    at, keep = "/api/pipelines/bare/actions", {"kind": "collect_garbage", "keep_days": 7}
    preview = step("garbage", "POST", f"{at}/preview", keep, user="admin")
    step("collected", "POST", at, {"id": preview["id"]}, user="admin")
    step("collected again", "POST", at, {"id": preview["id"]}, user="admin")
    step("no garbage", "POST", f"{at}/preview", keep, user="admin")
    at, wish = "/api/pipelines/orphan/actions", {"kind": "delete_pipeline"}
    step("deletion while it runs", "POST", "/api/pipelines/prices/actions/preview", wish, user="admin")
    first = step("deletion", "POST", f"{at}/preview", wish, user="admin")
    ledger.release(ledger.acquire("orphan", "cli:other:1:1", timedelta(hours=1)))
    order = {"reason": "its DAG is gone", "name": "orphan"}
    step("deletion after a run", "POST", at, {"id": first["id"], **order}, user="admin")
    preview = step("second deletion", "POST", f"{at}/preview", wish, user="admin")
    for name in (None, "", "orphans"):
        step(f"deletion of {name}", "POST", at, {"id": preview["id"], **order, "name": name}, user="admin")
    step("not deleted", "GET", "/api/pipelines/orphan", user="admin")
    step("deleted", "POST", at, {"id": preview["id"], **order}, user="admin")
    step("gone", "GET", "/api/pipelines/orphan", user="admin")["events"] = [
        [event["kind"], event["actor"], event["detail"].get("reason")]
        for event in ledger.event_page("orphan", limit=100)[0]
    ]


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
    with Ledger.open(ledger_url) as ledger:
        answers = {
            "matrix": walker.matrix(page),
            "deletions": walker.deletions(),
            "story": story(walker, ledger),
            "openapi": page.openapi(),
        }
    Path(file).write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
