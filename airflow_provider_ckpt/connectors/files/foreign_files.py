"""Refuse a target of the files sink that contains files of another writer, or files in another format."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_ckpt.connectors.files.layout import DATA_PREFIX
from airflow_provider_ckpt.core.errors import ConfigError


def refuse_foreign_files(names: Iterable[str], form: str, *, place: object, in_store: bool = False) -> None:
    """Raise an error if the target contains files of another writer, or files of this sink in another format.

    Hidden names (with a leading ``_`` or ``.``) are ignored, except Delta's ``_delta_log``.

    :param names: names of the files and directories in the target
    :param form: the sink's format, which is also the extension of its files
    :param place: the directory or prefix, for the message
    :param in_store: whether the place is a prefix of an object store
    :raises ConfigError: naming one of the files
    """
    files, target, empty = (
        ("objects", "prefix", "is empty") if in_store else ("files", "directory", "is empty, does not exist yet")
    )
    found = sorted(names)
    log = [name for name in found if name == "_delta_log"]
    foreign = log + [name for name in found if not name.startswith(("_", ".", DATA_PREFIX))]
    if foreign:
        raise ConfigError(
            f"sink.path: {place} holds other {files}, such as {foreign[0]}.",
            hint=f"Name a {target} that {empty}, or was written by the files sink alone.",
        )
    other = [name for name in found if name.startswith(DATA_PREFIX) and not name.endswith(f".{form}")]
    if other:
        raise ConfigError(
            f"sink.format: {place} holds {files} of another format, such as {other[0]}.",
            hint=f"Keep the format, or name another {target}.",
        )
