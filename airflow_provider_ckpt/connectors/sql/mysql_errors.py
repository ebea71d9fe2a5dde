"""Classify the errors of MySQL and MariaDB by the server's error number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sql.failures import Failure, first_line

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

MISFIT = "22000"
"""SQLSTATE for a value that does not fit its column, unless it is out of range, too long or no date or time."""

_DUPLICATES = frozenset({1022, 1062, 1169, 1586})
_OF_ROWS = {
    **dict.fromkeys(_DUPLICATES, "23000"),
    **dict.fromkeys((1048, 1216, 1452, 3819, 4025, 1748, 1526, 3690), "23000"),  # NULL, references, checks, partitions
    **dict.fromkeys((1264, 1690, 1367, 3156), "22003"),  # out of range
    **dict.fromkeys((1265, 1366, 1411, 1525, 3140, 3141, 3903, 1416, 1210, 1918), MISFIT),  # malformed
    **dict.fromkeys((1292, 1441), "22007"),  # no date or time
    **dict.fromkeys((1406, 1301, 1118, 1071), "22001"),  # too long
    1644: "45000",  # a trigger's SIGNAL
}
_LOCKED = {1205: "55P03", 1213: "40001", 1317: "57014", 1969: "57014", 3024: "57014", 1614: "40001"}
_FAILED = {
    **dict.fromkeys((1040, 1203, 1226, 1041, 1037, 1038, 1135, 1021, 1114, 1028, 3), "53000"),  # no room, no sessions
    **dict.fromkeys((1053, 1077, 1079), "57P01"),  # the server stops
    **dict.fromkeys((1290, 1836, 3100), "25006"),  # read-only
    **dict.fromkeys((1158, 1159, 1160, 1161, 2002, 2003, 2006, 2013, 2055, 4031, 1129, 1130), "08006"),
    1927: "08006",  # the session was killed
}
_LOGIN = {**dict.fromkeys((1044, 1045, 1698, 1142, 1143, 1227, 1370, 4151), "42501"), 1049: "3D000"}
_STATES = {**_OF_ROWS, **_LOCKED, **_FAILED, **_LOGIN, 1054: "42S22", 1064: "42000", 1146: "42S02"}


def number_of(error: DBAPIError) -> int | None:
    """Return the server's error number of an exception; None if there is none."""
    arguments: tuple[Any, ...] = getattr(error.orig, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else None


def classify(error: DBAPIError) -> Failure:
    """Return SQLSTATE and text of an exception, and whether a row caused it, judged by the server's error number."""
    number = number_of(error)
    arguments: tuple[Any, ...] = getattr(error.orig, "args", ())
    text = next(iter(str(arguments[1]).splitlines()), "") if len(arguments) > 1 else first_line(error)
    state = _STATES.get(number or -1) or getattr(error.orig, "sqlstate", None)
    return Failure(state, f"{text} ({number})" if number else text, number in _OF_ROWS, number in _DUPLICATES)
