"""Compare the identities of a target: database system, database and table, each of which can have been replaced."""

from __future__ import annotations

_PARTS = ("system identifier", "database oid", "table oid")
_REASONS = {
    "system identifier": "pg_upgrade, or a dump or logical replication into a new server, gives it another",
    "database oid": "a database that was created and filled anew has another",
    "table oid": "a table that was dropped and created again has another",
}


def describe_difference(before: str, now: str) -> str | None:
    """Return the differing parts and the usual reasons, as a clause; None if nothing differs or a text is no identity.

    :param before: earlier result of :func:`~.identity.table_identity`
    :param now: its result now
    """
    old, new = before.split("/"), now.split("/")
    if len(old) != len(_PARTS) or len(new) != len(_PARTS):
        return None
    differing = [(name, was, found) for name, was, found in zip(_PARTS, old, new, strict=True) if was != found]
    if not differing:
        return None
    parts = ", ".join(f"its {name} was {was} and is {found}" for name, was, found in differing)
    same = [name for name, was, found in zip(_PARTS, old, new, strict=True) if was == found]
    rest = f"; {' and '.join(same)} {'are as they were' if len(same) > 1 else 'is as it was'}" if same else ""
    return f"the target is not the one that was written: {parts}{rest} ({_REASONS[differing[0][0]]})"
