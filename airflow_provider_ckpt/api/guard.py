"""Guard of the whole API: require a signed-in user, and refuse requests that another website causes (CSRF).

A browser sends cookies with every request, also with requests that another website causes. So a request that changes
something must come from Airflow's own site, or contain a bearer token, which no browser sends by itself.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from fastapi import Depends, HTTPException, Request

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_DEFAULT_PORTS = {"http": 80, "https": 443}

# Imported at module level: FastAPI resolves annotations there, and takes an unknown name for a query parameter.
User = Annotated[BaseUser, Depends(get_user)]


def same_origin(request: Request) -> None:
    """Refuse a request that changes something unless its body is JSON and it is from this site or has a bearer token.

    :param request: the request
    :raises HTTPException: with status 403 if it is from another site or of unknown origin; with 415 if it is not JSON
    """
    if request.method in _SAFE_METHODS:
        return
    if not request.headers.get("authorization", "").lower().startswith("bearer "):
        _require_own_site(request)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415, "The body of this request must be application/json.")


def _require_own_site(request: Request) -> None:
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is None and site is None:
        raise HTTPException(
            403, "The request names neither its Origin nor its Sec-Fetch-Site. Send a bearer token instead of a cookie."
        )
    if (site is not None and site != "same-origin") or (origin is not None and not _is_own(origin, request)):
        raise HTTPException(403, "The request is from another site.")


def _is_own(origin: str, request: Request) -> bool:
    own = {_site(str(request.url)), _site(conf.get("api", "base_url", fallback=""))} - {None}
    return _site(origin) in own


def _site(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of a URL; None if it lacks one of them, such as the origin ``null``."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme]
