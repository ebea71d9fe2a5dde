"""Read, validate and display the declaration of many tables that a DAG passes to an operator; nothing connects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators._declaration import cache_key, is_literal, load_literal, parse_or_none

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.database.model import Database

DatabaseDeclaration = str | Path | Mapping[str, Any]
"""Declaration of many tables as a DAG passes it: path of a YAML file relative to the DAG file's folder, or a dict."""


def load_database(declaration: object, folder: str | Path, user: str) -> Database:
    """Build the declaration of many tables from the argument that a DAG passes.

    :param declaration: the declaration as a DAG passes it, with templates rendered
    :param folder: folder from which a relative path starts
    :param user: description of the task that uses the declaration, for error messages, such as ``task shop.tables``
    :raises ConfigError: if the declaration is invalid; the message names file, line or key
    """
    from airflow_provider_ckpt.config.database.load import build

    if isinstance(declaration, Mapping):
        return build(declaration, user)
    if not isinstance(declaration, str | Path) or not str(declaration).strip():
        raise ConfigError(f"{user}: database is {declaration!r}; give a YAML file's path or a dict.")
    return load_database_file(Path(folder) / declaration)


def load_database_file(path: Path) -> Database:
    """Load the declaration of many tables from a YAML file.

    A file that is unchanged since this process loaded it is not read again.

    :param path: path of the file
    :raises ConfigError: if the file cannot be read or is invalid
    """
    from airflow_provider_ckpt.config.database.load import load

    return _load_cached(*cache_key(path)) or load(path)


def validate_database(declaration: object, folder: str | Path, user: str) -> None:
    """Validate a declaration of many tables when the DAG file is parsed.

    A declaration with a template is skipped, and so is a file that names environment variables which are not set here
    (they may be set for the workers only); these are validated when the task runs.

    :param declaration: the declaration as a DAG passes it
    :param folder: folder from which a relative path starts
    :param user: description of the task that uses the declaration, for error messages
    :raises ConfigError: if the declaration is invalid
    """
    if is_literal(declaration):
        load_literal(declaration, folder, _load_cached, lambda: load_database(declaration, folder, user))


def displayed_database(declaration: object, folder: str | Path) -> dict[str, Any] | None:
    """Return the digest and the settings of a declaration, which Airflow shows and stores; None if it cannot be read
    yet.

    The digest covers the whole declaration, so that Airflow creates a new version of the DAG for any change.

    :param declaration: the declaration as a DAG passes it
    :param folder: folder from which a relative path starts
    :return: ``{"digest": …, "database": …}``; the settings are None if environment variables are missing here
    """
    if not is_literal(declaration):
        return None
    database: Database | None
    try:
        if isinstance(declaration, Mapping):
            text = json.dumps(declaration, sort_keys=True, default=str)
            database = load_database(declaration, folder, "database")
        else:
            from airflow_provider_ckpt.config.load import read_text

            path = Path(folder) / str(declaration)
            text = read_text(path)
            database = _load_cached(*cache_key(path))
    except ConfigError:
        return None
    settings = None if database is None else database.settings.model_dump(mode="json")
    return {"digest": hashlib.sha256(text.encode()).hexdigest(), "database": settings}


@lru_cache(maxsize=256)
def _load_cached(path: Path, _mtime: int, _size: int) -> Database | None:
    """Return the declaration in a file, or None if environment variables that the file names are not set here.

    :param path: path of the file
    :param _mtime: modification time of the file (ns); part of the cache key only
    :param _size: size of the file in bytes; part of the cache key only
    :raises ConfigError: if the file is invalid
    """
    from airflow_provider_ckpt.config.database.load import parse

    return parse_or_none(path, parse)
