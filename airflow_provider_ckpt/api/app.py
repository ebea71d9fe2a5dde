"""FastAPI application that the plugin mounts in Airflow's API server: the guarded API, and the page's files.

Airflow requires no sign-in for mounted applications. So this application has a guard of its own (``guard.py``), which
covers every route of the API. The page's own files are public, like the files of Airflow's own pages.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles

from airflow_provider_ckpt.api.guard import same_origin
from airflow_provider_ckpt.api.models.fields import Problem
from airflow_provider_ckpt.api.problems import MEDIA_TYPE, add_problem_handlers
from airflow_provider_ckpt.api.routes import actions, batches, dead_letters, pipelines

PREFIX = "/ckpt"
"""Path below Airflow's base URL at which the application is mounted."""

_API = "/api"
_VERSION = "1"
_STATIC = "/static"
_SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"}
_PROBLEMS = {
    401: "Not logged in",
    403: "No right, or the request is from another site",
    404: "No such pipeline, batch or partition that the user may see",
    409: "The state in the ledger does not allow it",
    415: "The body is not JSON",
    422: "The request is invalid",
    502: "Source or sink cannot be read",
    503: "The ledger cannot be reached",
}


def create_app() -> FastAPI:
    """Return a new FastAPI application with the API of the page; each API request needs a signed-in user."""
    app = FastAPI(
        title="Replication",
        version=_VERSION,
        description="State of replicated pipelines in the ledger, and users' actions on them.",
        dependencies=[Depends(get_user), Depends(same_origin)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        servers=[{"url": PREFIX}],
        root_path_in_servers=False,
    )
    for part in (pipelines, batches, dead_letters, actions):
        app.include_router(part.router, prefix=_API, responses=_problem_responses())
    app.include_router(_document_router(app), prefix=_API)
    for route in app.routes:
        if isinstance(route, APIRoute):
            _describe(route)
    add_problem_handlers(app)
    app.middleware("http")(_set_headers)
    bundle = Path(__file__).parent.parent / "ui" / "bundle"
    app.mount(_STATIC, StaticFiles(directory=bundle, check_dir=False), name="ckpt_static")
    return app


def _describe(route: APIRoute) -> None:
    """Describe a route and its parameters in the OpenAPI document by the docstring of the route's function.

    :param route: the route, which is changed
    """
    route.description, _, fields = route.description.partition("\n\n:param ")
    texts = dict(re.findall(r"^(?::param )?(\w+): (.*?)(?=\n:|\Z)", fields, re.DOTALL | re.MULTILINE))
    for parameter in route.dependant.query_params:  # codespell:ignore dependant
        parameter.field_info.description = " ".join(texts.get(parameter.name, "").split())


def _problem_responses() -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {
        status: {"description": text, "model": Problem, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status, text in _PROBLEMS.items()
    }


def _document_router(app: FastAPI) -> APIRouter:
    router = APIRouter()

    @router.get("/openapi.json", operation_id="get_openapi", include_in_schema=False)
    def get_openapi() -> dict[str, Any]:
        """Return the OpenAPI document of the API."""
        return app.openapi()

    return router


async def _set_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Set security headers on a response; forbid caching of the API's responses, and allow caching of versioned files.

    A file is versioned if its address contains its digest.

    :param request: the request
    :param call_next: function that returns the application's response to the request
    """
    response = await call_next(request)
    for name, value in _SECURITY_HEADERS.items():
        response.headers[name] = value
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    if not path.startswith(f"{_STATIC}/"):
        response.headers["Cache-Control"] = "no-store"
    elif request.query_params.get("v") and response.status_code == 200:
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
    return response
