"""Evaluate SQL expressions of constants on the server, if they call only harmless functions and yield a short text.

The expressions come from code of the source database, such as the argument of ``nextval`` in a trigger. Harmless are
``format``, ``concat``, ``lower`` and other functions on texts, and ``pg_get_serial_sequence``. An expression that calls
another function, or whose value could be longer than 16 Mi characters, is not evaluated: its value is None.
"""

from __future__ import annotations

import re

from airflow_provider_ckpt.connectors.postgres.client import sqlstate_of
from airflow_provider_ckpt.connectors.postgres.table import Fetch

_MAX_VALUE = 16 * 1024 * 1024
"""Greatest length that the value of an expression of constants may reach, in characters.

An expression that could exceed it is not evaluated.
"""

_LIMIT_TIME = """
SELECT pg_catalog.set_config('statement_timeout', '5s', true)
WHERE pg_catalog.current_setting('statement_timeout') = '0'
"""
_TEXT_FUNCTIONS = re.compile(
    r"\b(?:pg_catalog\.)?(format|quote_ident|concat|concat_ws|lower|upper|pg_get_serial_sequence)\s*+(?=\()",
    re.IGNORECASE,
)
_STRING = re.compile(r"'[^']*+(?:''[^']*+)*'")
_EVALUABLE = re.compile(
    r"(?:\s|\|\||[(),]|''|::(?:pg_catalog\.)?(?:regclass|text|name|varchar)\b"
    r"|pg_catalog\.(?:format|quote_ident|concat|concat_ws|lower|upper|pg_get_serial_sequence)(?=\())*",
    re.IGNORECASE,
)
"""Pattern of an expression that the server may evaluate, after the content of its string constants has been removed."""

_TO_CLASS = re.compile(rf"({_STRING.pattern})|::(?:pg_catalog\.)?regclass\b", re.IGNORECASE)
"""Pattern of a string constant, which is kept, or of a cast to ``regclass`` outside of constants, which is replaced.

``regclass`` is the type of the name of a relation.
"""

_TEXT_CALL = re.compile(r"pg_catalog\.\w++\(")
_FORMAT = re.compile(
    rf"{_STRING.pattern}"
    rf"|pg_catalog\.format\((\s*+({_STRING.pattern})(?:::(?:pg_catalog\.)?(?:text|varchar)\b)?+\s*+[,)])?",
    re.IGNORECASE,
)
"""Pattern of a string constant, which is passed over, or of a call of ``format``.

A call is found with its template, if that is a constant.
"""

_WIDTH = re.compile(r"%(?:[0-9]++\$)?-*+(?:\*|[0-9]{3})")
"""Pattern of a field width, in a template of ``format``, that is taken from an argument or has more than two digits."""


def time_limited(query: str) -> str:
    """Return SQL that sets a time limit of 5 s, unless the session has its own, and then runs a query.

    In a psycopg2 connection in autocommit mode, both statements are sent at once and form one transaction, so the limit
    ends with the query.

    :param query: the query
    """
    return f"{_LIMIT_TIME}; {query}"


def evaluate_constants(fetch: Fetch, argument: str) -> str | None:
    """Return the value of an SQL expression of constants as text, computed by the server.

    Return None without evaluating it if it contains more than constants and harmless functions, or its value could
    exceed :data:`_MAX_VALUE`. Return None, too, if its value is NULL or the server reports an error.

    :param fetch: runs a query on the source database and returns its rows
    :param argument: the expression, such as the argument of ``nextval``
    """
    expression = _TEXT_FUNCTIONS.sub(lambda found: f"pg_catalog.{found[1]}", argument)
    if not _EVALUABLE.fullmatch(_STRING.sub("''", expression)) or not _is_bounded(expression):
        return None
    # A cast to regclass is left out: the code's function may have another search path than this session.
    expression = _TO_CLASS.sub(lambda found: found[1] or "::text", expression)
    try:
        value = fetch(time_limited(f"SELECT ({expression})::text"), [])[0][0]
    except Exception as error:
        if sqlstate_of(error) is None:  # the connection failed, not the expression
            raise
        return None
    return None if value is None else str(value)


def _is_bounded(expression: str) -> bool:
    """Return whether no part of an expression of constants can exceed :data:`_MAX_VALUE` when it is evaluated.

    The length is estimated from above: the expression's own length, multiplied for each call, since a call can repeat
    an argument as often as there are ``%`` or commas, and double the quotes in it. The result is False without an
    estimate if a template of ``format`` is no constant or has a width of more than two digits, which could make a text
    of any length; or if there is a backslash, which can hide the end of a constant if ``standard_conforming_strings``
    is off.
    """
    templates = [found[2] for found in _FORMAT.finditer(expression) if not found[0].startswith("'")]
    if "\\" in expression or any(template is None or _WIDTH.search(template) for template in templates):
        return False
    growth = 2 * expression.count("%") + expression.count(",") + 3
    length = len(expression)
    for _ in _TEXT_CALL.finditer(_STRING.sub("''", expression)):
        length *= growth
        if length > _MAX_VALUE:
            return False
    return True
