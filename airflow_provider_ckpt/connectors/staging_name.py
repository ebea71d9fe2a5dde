"""Name the tables in which a refresh stages its rows beside a target."""

from __future__ import annotations

import hashlib

STAGING_PREFIX = "ckpt_stage_"
"""Beginning of the name of each staging table."""

_MAX_NAME_BYTES = 63


def staging_name(table: str, generation: int) -> str:
    """Return the name of the staging table of a refresh: at most 63 bytes, different for each target and generation.

    :param table: name of the target without its schema
    :param generation: the generation
    """
    name = f"{STAGING_PREFIX}{generation}_{table}"
    if len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    digest = f"_{hashlib.sha256(table.encode()).hexdigest()[:8]}"
    return name.encode()[: _MAX_NAME_BYTES - len(digest)].decode(errors="ignore") + digest
