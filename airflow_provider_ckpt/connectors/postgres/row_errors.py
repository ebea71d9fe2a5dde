"""SQLSTATEs of the server errors that the data of single rows can cause.

The patterns are read by Python and by PostgreSQL alike.
"""

from __future__ import annotations

import re

from airflow_provider_ckpt.connectors.postgres.client import sqlstate_of

OF_DATA = "^(22|23|54)"
"""A value that does not fit, a constraint, and a value nested too deep or too large for an index."""

_OF_KEYS = "^21"
"""Two rows of one statement have the same key after all, such as one that a trigger changes."""

OF_SYNTAX = "^(42601|42602|XX000)$"
"""A text that its type's input function cannot read: hstore, ltree, tsquery, jsonpath …; to be seen by a cast alone."""

OF_NAMES = "^(3F000|42704|42725|42883|42P01)$"
"""Nothing has the name that a value of ``regclass``, ``regtype`` … gives; of any other column, the target is broken."""

_SERVER_CLASSES = (
    "00|01|02|03|08|09|0A|0B|0F|0L|0P|0Z|10|20|21|22|23|24|25|26|27|28|2B|2D|2F|34|38|39|3B|3D|3F|40|42|44|53|54|55|57"
    "|58|72|F0|HV|P0|XX|CK"
)
OF_FUNCTIONS = f"^(P000[1-4]$|(?!{_SERVER_CLASSES}))"
"""Raised by a function of the target's owner: RAISE, ASSERT, or a SQLSTATE of a class that the server does not use."""

OF_A_ROW = "|".join((OF_DATA, OF_SYNTAX, OF_NAMES, OF_FUNCTIONS))
OF_SEVERAL = f"{OF_A_ROW}|{_OF_KEYS}"


def may_be_of_rows(error: Exception) -> bool:
    """Return whether the data of some rows may be the cause, so that it is worth trying them one by one."""
    state = sqlstate_of(error)
    return state is not None and re.search(OF_SEVERAL, state) is not None
