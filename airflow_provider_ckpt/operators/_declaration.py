"""Read, validate and display the pipeline declaration that a DAG passes to an operator.

A declaration is validated when the DAG file is parsed. If it contains a template or another task's result, whose value
is known only later, it is validated when the task runs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from airflow_provider_ckpt.config.pipeline import Pipeline, without_conf
from airflow_provider_ckpt.config.variables import unset_variables
from airflow_provider_ckpt.core.errors import ConfigError

Declaration = str | Path | Mapping[str, Any] | Pipeline
"""Declaration of a pipeline as a DAG passes it: path of a YAML file relative to the DAG file's folder, a dict, or a
``Pipeline``."""

T = TypeVar("T")

_TEMPLATE_MARKERS = ("{{", "{%", "{#")
_MAPPED_ARGUMENT = "MappedArgument("
"""Start of the ``repr`` of a mapped task group's argument, which is in place of its value until a task runs."""


def load_pipeline(declaration: object, folder: str | Path, user: str) -> Pipeline:
    """Build the pipeline from its declaration.

    :param declaration: the declaration as a DAG passes it, with templates rendered
    :param folder: folder from which a relative path starts
    :param user: description of the task that uses the declaration, for error messages, such as ``task orders``
    :raises ConfigError: if the declaration is invalid; the message names file, line or key
    """
    from airflow_provider_ckpt.config.load import build, load

    if isinstance(declaration, Pipeline):
        return declaration
    if isinstance(declaration, Mapping):
        return build(declaration, user)
    path = declared_path(declaration, folder, f"{user}: pipeline")
    _refuse_mapped_argument(declaration, user)
    return load(path)


def declared_path(declaration: object, folder: str | Path, argument: str) -> Path:
    """Return the path of the YAML file that a DAG passes as a declaration.

    :param declaration: the declaration as a DAG passes it, with templates rendered
    :param folder: folder from which a relative path starts
    :param argument: description of the argument, for the error message, such as ``task orders: pipeline``
    :raises ConfigError: if the declaration is not a path, or is empty; the message asks for a path or a dict, since
        callers handle dicts before they call this function
    """
    if not isinstance(declaration, str | Path):
        raise ConfigError(f"{argument} is {declaration!r}; give a YAML file's path or a dict.")
    if not str(declaration).strip():
        raise ConfigError(f"{argument} is empty; give a YAML file's path or a dict.")
    return Path(folder) / declaration


class DeclarationFiles(Generic[T]):
    """Declarations of one kind in YAML files; a file that is unchanged since this process loaded it is not read again.

    :param parse: function that parses the text of a file, given the text and the path
    :param most: largest number of files whose declarations are kept
    """

    def __init__(self, parse: Callable[[str, str], T], most: int) -> None:
        self._parse = parse
        self._load_version = lru_cache(maxsize=most)(self._load_if_set)

    def load(self, path: Path) -> T:
        """Load the declaration in a file.

        :param path: path of the file
        :raises ConfigError: if the file cannot be read or is invalid
        """
        from airflow_provider_ckpt.config.load import read_text

        found = self.load_if_set(path)
        return self._parse(read_text(path), str(path)) if found is None else found

    def load_if_set(self, path: Path) -> T | None:
        """Load the declaration in a file; return None if this process lacks environment variables that the file names.

        :param path: path of the file
        :raises ConfigError: if the file cannot be read or is invalid
        """
        try:
            found = path.stat()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
            raise ConfigError(
                f"{path}: cannot be read: {reason}", hint="A path is relative to the DAG file's folder."
            ) from error
        return self._load_version(path, found.st_mtime_ns, found.st_size)

    def _load_if_set(self, path: Path, _mtime: int, _size: int) -> T | None:
        """Load the declaration in a file; see :meth:`load_if_set`.

        :param path: path of the file
        :param _mtime: modification time of the file (ns); part of the cache key only
        :param _size: size of the file in bytes; part of the cache key only
        """
        from airflow_provider_ckpt.config.load import read_text

        text = read_text(path)
        try:
            return self._parse(text, str(path))
        except ConfigError:
            if unset_variables(text, os.environ):
                return None
            raise


def _parse(text: str, name: str) -> Pipeline:
    from airflow_provider_ckpt.config.load import parse

    return parse(text, name)


_FILES = DeclarationFiles(_parse, 4096)


def load_file(path: Path) -> Pipeline:
    """Load the pipeline that a YAML file declares; see :class:`DeclarationFiles`.

    :param path: path of the file
    :raises ConfigError: if the file cannot be read or is invalid
    """
    return _FILES.load(path)


def find_declared(folder: Path, name: str) -> Pipeline | None:
    """Return the pipeline with a given name that a YAML file in a folder declares; None if no file declares this name.

    :param folder: the folder
    :param name: name of the pipeline
    :raises ConfigError: if the file that declares the pipeline is invalid
    """
    from airflow_provider_ckpt.config.outline import declares_many_tables, read_outline

    for path in sorted(folder.glob("*.y*ml")):
        if not declares_many_tables(path) and read_outline(path).name == name:
            return load_file(path)
    return None


def validate(declaration: object, folder: str | Path, user: str) -> None:
    """Validate a declaration when the DAG file is parsed.

    Two kinds of declarations are validated only when the task runs: a declaration with a template, and a file that
    names environment variables which are not set in this process (they may be set for the workers only).

    :param declaration: the declaration as a DAG passes it
    :param folder: folder from which a relative path starts
    :param user: description of the task that uses the declaration, for error messages
    :raises ConfigError: if the declaration is invalid
    """
    if not is_literal(declaration):
        _refuse_mapped_argument(declaration, user)
    else:
        load_literal(declaration, folder, _FILES, lambda: load_pipeline(declaration, folder, user))


def load_literal(
    declaration: object, folder: str | Path, files: DeclarationFiles[T], load_other: Callable[[], object]
) -> None:
    """Load a declaration to find out whether it is valid; the result is discarded.

    A file that names environment variables which are not set in this process counts as valid.

    :param declaration: the declaration as a DAG passes it, without templates or results of other tasks
    :param folder: folder from which a relative path starts
    :param files: object that loads the declaration if it is the path of a file
    :param load_other: function that loads the declaration if it is anything else, such as a dict
    :raises ConfigError: if the declaration is invalid
    """
    if isinstance(declaration, str | Path) and str(declaration).strip():
        files.load_if_set(Path(folder) / declaration)
    else:
        load_other()


def displayed_declaration(declaration: object, folder: str | Path, user: str) -> dict[str, Any] | None:
    """Return a declaration in the form in which Airflow shows and stores it.

    The result is None for a declaration with a template or another task's result, and for an invalid one.

    ``document`` is the declaration without the values of ``run.conf``, which may be secret. ``digest`` covers these
    values too, so that Airflow creates a new version of the DAG for any change.

    :param declaration: the declaration as a DAG passes it
    :param folder: folder from which a relative path starts
    :param user: description of the task that uses the declaration, for error messages
    :return: ``{"digest": …, "document": …}``; ``document`` is None if environment variables are missing in this process
    """
    known = digest(declaration, folder, user)
    if known is None:
        return None
    try:
        if isinstance(declaration, str | Path):
            pipeline = _FILES.load_if_set(Path(folder) / declaration)
        else:
            pipeline = load_pipeline(declaration, folder, user)
    except ConfigError:
        return None
    return {"digest": known, "document": None if pipeline is None else without_conf(pipeline.document())}


def digest(declaration: object, folder: str | Path, user: str) -> str | None:
    """Return the SHA-256 digest of a declaration; for a file, that of its text, which is not validated.

    The result is None for a declaration with a template or another task's result, and for one that cannot be read.

    :param declaration: the declaration as a DAG passes it
    :param folder: folder from which a relative path starts
    :param user: description of the task that uses the declaration, for error messages
    """
    if not is_literal(declaration):
        return None
    try:
        if isinstance(declaration, str | Path):
            from airflow_provider_ckpt.config.load import read_text

            text = read_text(Path(folder) / declaration)
        else:
            text = json.dumps(load_pipeline(declaration, folder, user).document(), sort_keys=True)
    except ConfigError:
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def is_literal(declaration: object) -> bool:
    """Return whether a declaration is known when the DAG file is parsed.

    The result is True if the declaration contains neither templates nor results of other tasks.

    :param declaration: the declaration as a DAG passes it, or a part of it
    """
    if isinstance(declaration, Pipeline | Path):
        return True
    if isinstance(declaration, str):
        return _MAPPED_ARGUMENT not in declaration and not any(marker in declaration for marker in _TEMPLATE_MARKERS)
    if isinstance(declaration, Mapping):
        return all(map(is_literal, declaration.values()))
    if isinstance(declaration, list | tuple):
        return all(map(is_literal, declaration))
    return declaration is None or isinstance(declaration, int | float)


def _refuse_mapped_argument(declaration: object, user: str) -> None:
    """Raise :class:`ConfigError` if a path contains the ``repr`` of a mapped group's argument instead of its value.

    :param declaration: the declaration as a DAG passes it
    :param user: description of the task that uses the declaration, for the error message
    """
    if isinstance(declaration, str) and _MAPPED_ARGUMENT in declaration:
        raise ConfigError(
            f"{user}: pipeline is a text that contains an argument of a mapped task group, whose value is unknown when "
            "the DAG file is parsed.",
            hint='Expand over the whole path: group.expand(pipeline=[f"pipelines/{name}.yaml" for name in names]), '
            "and pass the argument unchanged: pipeline=pipeline.",
        )
