"""Match tables with patterns of shell style, and suggest the nearest table for a pattern or name that matches none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate

_CUTOFF = 0.5
"""Minimum similarity, from 0 to 1, of a name that is suggested; see :func:`difflib.get_close_matches`."""


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """A pattern with the tables that it matches.

    :param pattern: the pattern, as the declaration has it
    :param excludes: whether the pattern is in ``exclude`` instead of ``include``
    :param tables: the tables, as ``schema.table``, in the order of the catalog; other patterns may exclude them
    """

    pattern: str
    excludes: bool
    tables: tuple[str, ...]


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that returns whether a text, such as ``public.orders``, matches any of the patterns."""
    expressions = [re.compile(translate(pattern)) for pattern in patterns]
    return lambda text: any(expression.match(text) for expression in expressions)


def matches(include: Sequence[str], exclude: Sequence[str], labels: Sequence[str]) -> tuple[PatternMatch, ...]:
    """Return the tables that each pattern matches: first the patterns of ``include``, then those of ``exclude``.

    :param include: patterns of the tables that are replicated
    :param exclude: patterns of tables that are left out
    :param labels: all tables, as ``schema.table``
    """
    return tuple(
        PatternMatch(pattern, excludes, tuple(filter(matcher([pattern]), labels)))
        for excludes, patterns in ((False, include), (True, exclude))
        for pattern in patterns
    )


def nearest_clause(text: str, labels: Iterable[str]) -> str:
    """Return the end of an error message that names the table most similar to a text; empty if none is similar.

    For example: ``; did you mean public.orders?``. For a pattern, the clause may suggest a whole schema instead,
    such as ``public.*``.

    :param text: a pattern or the name of a table
    :param labels: tables, as ``schema.table``
    """
    known = dict.fromkeys(labels)
    if any(sign in text for sign in "*?["):
        known = {f"{label.partition('.')[0]}.*": None for label in known} | known
    close = get_close_matches(text, known, 1, _CUTOFF)
    return f"; did you mean {close[0]}?" if close else ""
