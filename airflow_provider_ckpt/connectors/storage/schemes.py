"""Tell URLs of object stores from paths, without loading anything that opens them."""

from __future__ import annotations

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""Kind of object store by the scheme of its URLs."""


def is_object_url(text: str) -> bool:
    """Return whether a path or URL in a pipeline names an object store."""
    return "://" in text and text.partition("://")[0].lower() in SCHEMES
