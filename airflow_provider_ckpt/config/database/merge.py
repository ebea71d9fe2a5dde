"""Merge the defaults of a declaration of many tables with the keys of one table, and locate merged keys in the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_ckpt.config.unknown_keys import KeyPath

_TYPED = ("source", "sink")


def merge(defaults: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of one table: the defaults, replaced or completed by the table's own keys.

    Mappings are merged key by key; any other value replaces the default as a whole. A null removes the default. A
    table's section ``source`` or ``sink`` whose ``type`` is another one than the default's replaces the whole section,
    since types have different keys.

    :param defaults: the section ``defaults``
    :param override: the table's section in ``tables``
    """
    return _merge(_without_other_types(defaults, override), override)


def _without_other_types(defaults: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in defaults.items()
        if not (key in _TYPED and _has_other_type(value, override.get(key)))
    }


def _has_other_type(default: Any, given: Any) -> bool:
    return (
        isinstance(default, Mapping)
        and isinstance(given, Mapping)
        and given.get("type") is not None
        and given["type"] != default.get("type")
    )


def _merge(defaults: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in (*defaults, *(key for key in override if key not in defaults)):
        value = override.get(key, defaults.get(key))
        if key in override and value is None and key in defaults:
            continue
        both = isinstance(value, Mapping) and isinstance(defaults.get(key), Mapping) and key in override
        merged[key] = _merge(defaults[key], value) if both else value
    return merged


def place_in_file(path: KeyPath, label: str, defaults: Mapping[str, Any], override: Mapping[str, Any]) -> KeyPath:
    """Return the path in the file from which a merged key of a table comes: in its override, or else in the defaults.

    For example: ``("tables", "shop.orders", "retry", "rounds")`` or ``("defaults", "retry", "rounds")``. A missing key
    gets the path that it would have below its nearest existing parent.

    :param path: path of the key in the merged keys
    :param label: the table, as ``schema.table``
    :param defaults: the section ``defaults``
    :param override: the table's section in ``tables``; empty if it has none
    """
    for length in range(len(path), 0, -1):
        for place, data in ((("tables", label), override), (("defaults",), defaults)):
            if _has(data, path[:length]):
                return (*place, *path)
    return ("tables", label, *path) if override else ("defaults", *path)


def _has(data: Any, path: KeyPath) -> bool:
    for key in path:
        if isinstance(data, Mapping):
            if key not in data:
                return False
        elif not isinstance(data, list | tuple) or not isinstance(key, int) or not 0 <= key < len(data):
            return False
        data = data[key]
    return True
