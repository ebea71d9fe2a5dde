"""Read, validate and display the declaration of many tables that a DAG passes to an operator; open no connection."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators._declaration import DeclarationFiles, declared_path, is_literal, load_literal

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
    return load_database_file(declared_path(declaration, folder, f"{user}: database"))


def _parse(text: str, name: str) -> Database:
    from airflow_provider_ckpt.config.database.load import parse

    return parse(text, name)


_FILES = DeclarationFiles(_parse, 256)


def load_database_file(path: Path) -> Database:
    """Load the declaration of many tables from a YAML file; see :class:`DeclarationFiles`.

    :param path: path of the file
    :raises ConfigError: if the file cannot be read or is invalid
    """
    return _FILES.load(path)


def validate_database(declaration: object, folder: str | Path, user: str) -> None:
    """Validate a declaration of many tables when the DAG file is parsed.

    Two kinds of declarations are validated only when the task runs: a declaration with a template, and a file that
    names environment variables which are not set in this process (they may be set for the workers only).

    :param declaration: the declaration as a DAG passes it
    :param folder: folder from which a relative path starts
    :param user: description of the task that uses the declaration, for error messages
    :raises ConfigError: if the declaration is invalid
    """
    if is_literal(declaration):
        load_literal(declaration, folder, _FILES, lambda: load_database(declaration, folder, user))


def displayed_database(declaration: object, folder: str | Path) -> dict[str, Any] | None:
    """Return the digest and the section ``database`` of a declaration, which Airflow shows and stores.

    The result is None for a declaration with a template or another task's result, and for an invalid one. The digest
    covers the whole declaration, so that any change makes a new version of the DAG.

    :param declaration: the declaration as a DAG passes it
    :param folder: folder from which a relative path starts
    :return: ``{"digest": …, "database": …}``; ``database`` is None if environment variables are missing in this process
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
            database = _FILES.load_if_set(path)
    except ConfigError:
        return None
    settings = None if database is None else database.settings.model_dump(mode="json")
    return {"digest": hashlib.sha256(text.encode()).hexdigest(), "database": settings}
