"""Answer errors of the API with problem details (RFC 9457).

The error handlers of Airflow's own API do not apply to a mounted application.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from airflow_provider_ckpt.api.models.fields import InvalidField, Problem
from airflow_provider_ckpt.core.errors import (
    CkptError,
    ConfigError,
    LeaseBusyError,
    LedgerStateError,
    LedgerUnavailableError,
    MissingConnectionError,
)

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_STATUS: dict[type[CkptError], int] = {
    LedgerUnavailableError: 503,
    MissingConnectionError: 503,
    LedgerStateError: 409,
    LeaseBusyError: 409,
    ConfigError: 422,
}
_OF_SINK_OR_SOURCE = 502


def add_problem_handlers(app: FastAPI) -> None:
    """Make an app answer errors with problem details (RFC 9457); the text of an unexpected error is not disclosed.

    :param app: the app
    """
    app.add_exception_handler(CkptError, _of_ckpt_error)
    app.add_exception_handler(HTTPException, _of_http_exception)
    app.add_exception_handler(RequestValidationError, _of_invalid_request)
    app.add_exception_handler(Exception, _of_unexpected)


def _answer(problem: Problem, headers: dict[str, str] | None = None) -> JSONResponse:
    content = problem.model_dump(mode="json")
    return JSONResponse(content, problem.status, {"Cache-Control": "no-store", **(headers or {})}, MEDIA_TYPE)


def _of_ckpt_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, CkptError)
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), _OF_SINK_OR_SOURCE)
    name = type(error).__name__
    hint, error.hint = error.hint, None
    return _answer(Problem(type=f"urn:ckpt:problem:{name}", title=name, status=status, detail=str(error), hint=hint))


def _of_http_exception(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    problem = Problem(type="about:blank", title=title, status=error.status_code, detail=str(error.detail))
    return _answer(problem, dict(error.headers or {}))


def _of_invalid_request(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields = [InvalidField(field=".".join(map(str, item["loc"])), message=item["msg"]) for item in error.errors()[:50]]
    detail = "The request is invalid: " + "; ".join(f"{item.field}: {item.message}" for item in fields[:5])
    problem = Problem(type="about:blank", title="Invalid request", status=422, detail=detail, errors=fields)
    return _answer(problem)


def _of_unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "The API server has an error, which its log describes."
    return _answer(Problem(type="about:blank", title="Internal Server Error", status=500, detail=detail))
