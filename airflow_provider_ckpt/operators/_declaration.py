"""A pipeline's declaration as a DAG gives it: judged when the DAG file is parsed, loaded when the task runs, and shown.

What a template or another task is yet to give is judged when it is there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.variables import unset
from airflow_provider_ckpt.core.errors import ConfigError

Declaration = str | Path | Mapping[str, Any] | Pipeline
"""A pipeline as a DAG gives it: the path of a YAML file, relative to the DAG file's folder; a dict; or the model."""

_TEMPLATE = ("{{", "{%", "{#")
_ARGUMENT = "MappedArgument("
"""Start of the text that Python formats an expanded task group's argument as; its values come when the task runs."""


def read(declaration: object, folder: str | Path, user: str) -> Pipeline:
    """The pipeline that is declared.

    :param declaration: as a DAG gives it, rendered
    :param folder: where relative paths start
    :param user: what errors call whoever uses it, ``task orders``
    :raises ConfigError: if it is wrong; the message names file, line or key
    """
    from airflow_provider_ckpt.config.load import build, load

    if isinstance(declaration, Pipeline):
        return declaration
    if isinstance(declaration, Mapping):
        return build(declaration, user)
    if not isinstance(declaration, str | Path):
        raise ConfigError(f"{user}: pipeline is {declaration!r}; give a YAML file's path or a dict.")
    if not str(declaration).strip():
        raise ConfigError(f"{user}: pipeline is empty; give a YAML file's path or a dict.")
    _refuse_argument(declaration, user)
    return load(Path(folder) / declaration)


def check(declaration: object, folder: str | Path, user: str) -> None:
    """Judge a declaration when the DAG file is parsed, as far as it can be judged there.

    A file with environment variables that are set for the workers alone is judged when the task runs.

    :param declaration: as a DAG gives it
    :param folder: where relative paths start
    :param user: what errors call whoever uses it
    :raises ConfigError: if it is wrong
    """
    if not is_literal(declaration):
        _refuse_argument(declaration, user)
        return
    if isinstance(declaration, str | Path) and str(declaration).strip():
        _parsed(*_version(Path(folder) / declaration))
    else:
        read(declaration, folder, user)


def shown(declaration: object, folder: str | Path, user: str) -> dict[str, Any] | None:
    """Return a declaration in the form that Airflow shows and stores, or None if it cannot be read yet.

    The document leaves out the values of ``run.conf``. The digest covers all of the declaration, those values included,
    so that Airflow creates a new version of the DAG for any change.

    :param declaration: the declaration as a DAG gives it
    :param folder: the folder from which relative paths start
    :param user: the name of the declaration's user in errors
    """
    known = digest(declaration, folder, user)
    if known is None:
        return None
    try:
        if isinstance(declaration, str | Path):
            pipeline = _parsed(*_version(Path(folder) / declaration))
        else:
            pipeline = read(declaration, folder, user)
    except ConfigError:
        return None
    return {"digest": known, "document": None if pipeline is None else _without_conf(pipeline)}


def digest(declaration: object, folder: str | Path, user: str) -> str | None:
    """Return the digest of a declaration; None if it cannot be read yet. A file is read and not judged.

    :param declaration: the declaration as a DAG gives it
    :param folder: the folder from which relative paths start
    :param user: the name of the declaration's user in errors
    """
    if not is_literal(declaration):
        return None
    try:
        if isinstance(declaration, str | Path):
            from airflow_provider_ckpt.config.load import text_of

            text = text_of(Path(folder) / declaration)
        else:
            text = json.dumps(read(declaration, folder, user).document(), sort_keys=True)
    except ConfigError:
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def is_literal(declaration: object) -> bool:
    """Whether a declaration is there already: no template, and nothing that another task gives."""
    if isinstance(declaration, Pipeline | Path):
        return True
    if isinstance(declaration, str):
        return _ARGUMENT not in declaration and not any(mark in declaration for mark in _TEMPLATE)
    if isinstance(declaration, Mapping):
        return all(map(is_literal, declaration.values()))
    if isinstance(declaration, list | tuple):
        return all(map(is_literal, declaration))
    return declaration is None or isinstance(declaration, int | float)


def _refuse_argument(declaration: object, user: str) -> None:
    if isinstance(declaration, str) and _ARGUMENT in declaration:
        raise ConfigError(
            f"{user}: pipeline is a text made of an argument of an expanded task group, whose value is not there when "
            "the DAG file is parsed.",
            hint='Expand over the whole path: group.expand(pipeline=[f"pipelines/{name}.yaml" for name in names]), '
            "and give the argument as it is: pipeline=pipeline.",
        )


def _without_conf(pipeline: Pipeline) -> dict[str, Any]:
    document = pipeline.document()
    document["run"]["conf"] = dict.fromkeys(pipeline.run.conf, "***")
    return document


def _version(path: Path) -> tuple[Path, int, int]:
    """A file as it is now.

    :raises ConfigError: if it is not there
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise ConfigError(
            f"{path}: cannot be read: {reason}", hint="A path is relative to the DAG file's folder."
        ) from error
    return path, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=256)
def _parsed(path: Path, _mtime: int, _size: int) -> Pipeline | None:
    """The pipeline of a file's version, None where variables that it names are not set here.

    :raises ConfigError: if the file is wrong
    """
    from airflow_provider_ckpt.config.load import parse, text_of

    text = text_of(path)
    try:
        return parse(text, str(path))
    except ConfigError:
        if unset(text, os.environ):
            return None
        raise
