"""Find the installed connector of a type, such as ``kafka``, by the entry points of distributions.

A connector is imported only if its type is needed, so a broken connector does not affect pipelines of other types.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Literal

from airflow_provider_ckpt.config.connector import Connector

GROUP = "airflow_provider_ckpt.connectors"
"""Name of the group of entry points; it is also the package of the built-in connectors."""

Part = Literal["source", "sink", "dead_letter_store"]
"""Name of an attribute of :class:`Connector` that may be None."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OBJECT = "CONNECTOR"
_GROUP_HEADER = f"[{GROUP}]".encode()


class ConnectorError(ValueError):
    """Error of a connector that is missing or cannot be imported, or whose type two distributions provide."""


class UnknownTypeError(ConnectorError):
    """Error of a ``type`` for which no connector is installed."""


_known_paths: dict[str, str] = {}
_loaded: dict[str, Connector] = {}


def find_connector(kind: str) -> Connector:
    """Return the connector of a type.

    :param kind: the type, such as ``kafka``
    :raises UnknownTypeError: if no distribution has the type
    :raises ConnectorError: if its connector cannot be imported, or two distributions claim the type
    """
    path = connector_path(kind)
    if path not in _loaded:
        _loaded[path] = _load(kind, path)
    return _loaded[path]


def connector_path(kind: str) -> str:
    """Return the import path of a type's connector, such as ``package.module:CONNECTOR``.

    :param kind: the type, such as ``kafka``
    :raises UnknownTypeError: if no distribution has the type
    :raises ConnectorError: if two distributions claim the type
    """
    if kind in _known_paths:
        return _known_paths[kind]
    claims = dict(_claims().get(kind, {}))
    if _built_in_path(kind) not in claims.values() and kind in _built_in():
        claims["airflow-provider-ckpt"] = _built_in_path(kind)
    if len(claims) > 1:
        raise ConnectorError(
            f"type {kind} is claimed by the connectors of two distributions, {' and '.join(sorted(claims))}; "
            "uninstall one"
        )
    if claims:
        return next(iter(claims.values()))
    raise UnknownTypeError(f"no installed distribution has a connector of type {kind}")


def use_paths(paths: Mapping[str, str]) -> None:
    """Make this process import connectors by given paths, which another process has found in entry points.

    Spark's executors then need the packages of the connectors, but no metadata of their distributions.

    :param paths: import path of the connector by type
    """
    _known_paths.update(paths)


def types_with(part: Part) -> list[str]:
    """Return the types whose connector has a source, a sink or a dead letter store, sorted; broken ones are left out.

    All installed connectors are imported, which is slow; the function is meant for error messages.

    :param part: the attribute that the connector must have
    """
    return [kind for kind, connector in installed_connectors() if getattr(connector, part) is not None]


def installed_connectors() -> Iterator[tuple[str, Connector]]:
    """Yield the type and connector of each installed connector, sorted by type; broken ones are left out."""
    for kind in sorted({*_known_paths, *_claims(), *_built_in()}):
        try:
            yield kind, find_connector(kind)
        except ConnectorError:
            continue


@cache
def _claims() -> Mapping[str, Mapping[str, str]]:
    """Return the import paths of connectors by type, then by the distribution that provides the connector.

    The distribution is given as name and version, such as ``my-connector 1.2``. Of distributions with the same name,
    only the first one on ``sys.path`` counts.
    """
    found: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for directory in _metadata_with_group():
        name, _, version = Path(directory).stem.partition("-")
        if name in seen:
            continue
        seen.add(name)
        for point in metadata.Distribution.at(directory).entry_points.select(group=GROUP):
            found.setdefault(point.name, {})[f"{name.replace('_', '-')} {version}".rstrip()] = point.value
    return found


def _metadata_with_group() -> Iterator[str]:
    """Yield the metadata directories of the distributions that have an entry point of the group.

    The files are searched as text, in a third of the time that :mod:`importlib.metadata` takes to parse the files of
    all distributions; every process that parses a DAG does this.
    """
    for entry in sys.path:
        with suppress(OSError), os.scandir(entry or ".") as found:
            for directory in found:
                if directory.name.endswith((".dist-info", ".egg-info")) and directory.name[0] != "~":  # pip removes it
                    with suppress(OSError), open(f"{directory.path}/entry_points.txt", "rb") as file:  # noqa: PTH123  # faster
                        if _GROUP_HEADER in file.read():
                            yield directory.path


@cache
def _built_in() -> frozenset[str]:
    """Return the types of this package's own connectors, found without the package's metadata.

    The metadata is missing in a tree of sources and in a zip file.
    """
    package = import_module(GROUP)
    return frozenset(
        module.name
        for module in iter_modules(package.__path__)
        if module.ispkg and _NAME.fullmatch(module.name) and find_spec(_built_in_path(module.name).partition(":")[0])
    )


def _built_in_path(kind: str) -> str:
    return f"{GROUP}.{kind}.connector:{_OBJECT}"


def _load(kind: str, path: str) -> Connector:
    module, _, name = path.partition(":")
    what = f"the connector of type {kind}, {path}{_origin(kind)},"
    try:
        found: object = getattr(import_module(module), name)
    except Exception as error:
        raise ConnectorError(f"{what} cannot be imported: {type(error).__name__}: {error}; {_remedy(kind)}") from error
    if not isinstance(found, Connector):
        raise ConnectorError(
            f"{what} is of type {type(found).__name__} instead of Connector; report this to its authors"
        )
    return found


def _origin(kind: str) -> str:
    """Return the part of an error message that names the distributions of a type, such as `` of my-connector 1.2``.

    The text is empty if another process has found the connector, see :func:`use_paths`.
    """
    return "".join(f" of {name}" for name in _claims().get(kind, {})) if kind not in _known_paths else ""


def _remedy(kind: str) -> str:
    if kind in _known_paths:
        return "install its distribution for the Python of Spark's executors, too"
    return "reinstall or update that distribution, or report this to its authors"
