"""Encode and decode the cursors with which clients request the next page of a list: the key of the page's last item."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from fastapi import HTTPException


def encode(*key: Any) -> str:
    """Return the cursor of the page after an item, an opaque text.

    :param key: parts of the item's key, which JSON can represent
    """
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def decode(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """Return the parts of a key from a cursor; None without a cursor.

    :param cursor: the cursor as the client sent it
    :param kinds: types that the parts must have
    :raises HTTPException: with status 422 if the text is not a cursor of a list with such keys
    """
    if cursor is None:
        return None
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        key = None
    is_key = isinstance(key, list) and len(key) == len(kinds)
    if not is_key or not all(type(part) is kind for part, kind in zip(key, kinds, strict=True)):
        raise HTTPException(422, "The cursor is not one that this list has returned. Begin with the first page.")
    return tuple(key)
