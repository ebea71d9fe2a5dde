"""Parse the arguments of actions that users write as text: batches, times, error types, selections of dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import get_close_matches

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import UNKNOWN_TYPE
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType
from airflow_provider_ckpt.core.replayable_dead_letters import Selection


def parse_batch_keys(texts: Iterable[str]) -> tuple[BatchKey, ...]:
    """Parse the names of batches, such as ``orders-0#17``, and return their keys in the given order.

    :param texts: names of batches, as users write them
    :raises ConfigError: if a text is not a batch's name
    """
    try:
        return tuple(BatchKey.parse(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def parse_selection(
    types: Iterable[str], batches: Iterable[str], since: str | None, until: str | None, stop_at: int | None
) -> Selection:
    """Return the selection of dead letters that a user's options describe.

    :param types: names of error types; all if empty
    :param batches: batches as ``partition#seq``; all if empty
    :param since: only dead letters of batches whose receipt was claimed at this time or later, ISO 8601; None for no
        limit
    :param until: only dead letters of batches whose receipt was claimed before this time, ISO 8601; None for no limit
    :param stop_at: maximum number of dead letters; None for no limit
    :raises ConfigError: if an option cannot be parsed
    """
    if stop_at is not None and stop_at < 1:
        raise ConfigError("the number of dead letters to stop at must be at least 1.")
    return Selection(
        parse_error_types(types),
        frozenset(parse_batch_keys(batches)),
        parse_time(since) if since else None,
        parse_time(until) if until else None,
        stop_at,
    )


def parse_error_types(names: Iterable[str]) -> frozenset[str]:
    """Return names of error types as a set, after checking that each of them exists.

    :param names: names, as users write them
    :raises ConfigError: if a name is not that of an error type
    """
    found = frozenset(names)
    known = {kind.lower(): kind for kind in (*(kind.value for kind in ErrorType), UNKNOWN_TYPE)}
    for name in sorted(found - set(known.values())):
        close = get_close_matches(name.lower(), known, 1)
        advice = f"Did you mean {known[close[0]]}?" if close else f"Known: {', '.join(known.values())}."
        raise ConfigError(f"there is no error type {name!r}.", hint=advice)
    return found


def parse_time(text: str) -> datetime:
    """Parse a time in ISO 8601 and return it in UTC; a text without a zone is in UTC.

    :param text: the time, as a user writes it
    :raises ConfigError: if the text is not a time in this format
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time.", hint="Write it as 2026-01-31T18:00:00+01:00; without a zone it is UTC."
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
