"""List the URL schemes of object stores, and tell such URLs from paths, without importing a client library."""

from __future__ import annotations

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""Schemes of object-store URLs, each with the kind of store: ``s3``, ``gs`` or ``az``."""


def is_object_url(text: str) -> bool:
    """Return whether a path or URL in a pipeline names an object store.

    :param text: the path or URL
    """
    return "://" in text and text.partition("://")[0].lower() in SCHEMES
