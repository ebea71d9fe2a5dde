"""Name the pipelines of a database's tables: ``<database>.<schema>.<table>``.

A pipeline's ledger rows and receipts belong to its name. So the pipelines of two tables must have different names,
whatever characters the names of the tables contain, and no name may depend on other tables. Letters, digits and ``_``
are kept; each byte of any other character, in UTF-8, becomes ``-`` and two hexadecimal digits.
"""

from __future__ import annotations

import hashlib
import re

MAX_LENGTH = 128
"""Maximum number of characters in the name of a pipeline."""

_HASH_DIGITS = 32
_HASH_MARK = "--"
"""Text before the hash, at the end of a pipeline's name that was cut because it was too long.

Names that were not cut do not contain it: in schema and table, each special character, even ``-``, is written as ``-``
and two hexadecimal digits.
"""

_PLAIN = re.compile(r"[A-Za-z0-9_]")
_ESCAPED = re.compile(r"(?:-[0-9a-f]{2})+")
_SECTION = re.compile(r"(?:[A-Za-z0-9_]|-[0-9a-f]{2})+")
_DATABASE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_HASH = re.compile(rf"{_HASH_MARK}[0-9a-f]{{{_HASH_DIGITS}}}")


def pipeline_name(database: str, schema: str, table: str) -> str:
    """Return the name of the pipeline that replicates a table; different tables have different names.

    A name that is too long is cut, and ends with a hash of the whole name.

    :param database: name of the declaration, which contains no dot
    :param schema: name of the table's schema
    :param table: name of the table
    """
    name = f"{database}.{_escape(schema)}.{_escape(table)}"
    if len(name) <= MAX_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{name[: MAX_LENGTH - _HASH_DIGITS - len(_HASH_MARK)]}{_HASH_MARK}{digest}"


def table_of_pipeline(database: str, pipeline: str) -> str | None:
    """Return the table that a pipeline of a database replicates, as ``schema.table``.

    :param database: name of the declaration
    :param pipeline: name of the pipeline
    :return: schema and table, as they are named in the database; None if the name was cut, or does not belong to a
        pipeline of this database
    """
    head, _, rest = pipeline.partition(".")
    parts = rest.split(".")
    if head != database or len(parts) != 2 or not all(_SECTION.fullmatch(part) for part in parts):
        return None
    try:
        return ".".join(_unescape(part) for part in parts)
    except UnicodeDecodeError:
        return None


def database_of_pipeline(pipeline: str) -> str | None:
    """Return the name of the declaration of many tables to which a pipeline belongs, judged by the pipeline's name.

    The result is None unless the name has the form ``<database>.<schema>.<table>``, or is such a name that was cut. A
    pipeline with such a name counts as belonging to the declaration even if it was declared alone.

    :param pipeline: name of the pipeline
    """
    head, _, rest = pipeline.partition(".")
    parts = rest.split(".")
    is_whole = len(parts) == 2 and all(_SECTION.fullmatch(part) for part in parts)
    is_cut = len(pipeline) == MAX_LENGTH and _HASH.fullmatch(pipeline[-_HASH_DIGITS - len(_HASH_MARK) :]) is not None
    return head if _DATABASE.fullmatch(head) and rest and (is_whole or is_cut) else None


def _escape(part: str) -> str:
    return "".join(
        character if _PLAIN.fullmatch(character) else "".join(f"-{byte:02x}" for byte in character.encode())
        for character in part
    )


def _unescape(part: str) -> str:
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("-", "")).decode(), part)
