"""Tell by SQLSTATE which errors of the server the data of single rows can cause.

What follows from them is in ``core/error_policy.py``. The patterns are used in Python and in PostgreSQL alike. The
duplicate key of a batch's own receipt (23505) is not among the errors that they are applied to: the receipt is claimed
before any row is written (``receipt_claim.py``).
"""

from __future__ import annotations

import re

from airflow_provider_ckpt.connectors.postgres.client import sqlstate_of

OF_DATA = "^(22|23|54)"
"""Errors of a value that is out of range, malformed, against a constraint, or too deep or large for an index."""

_OF_KEYS = "^21"
"""Error of two rows of one upsert that have the same key, for example because a trigger changes the key."""

OF_SYNTAX = "^(42601|42602|XX000)$"
"""Errors of a text that its type's input function cannot parse, such as that of hstore, ltree, tsquery or jsonpath.

Other causes have the same codes, so a cast of the value alone must confirm the error.
"""

OF_NAMES = "^(3F000|42704|42725|42883|42P01)$"
"""Errors of a value of ``regclass``, ``regtype`` … that names no existing object.

In columns of other types, errors with these codes are not caused by the row's data.
"""

_SERVER_CLASSES = (
    "00|01|02|03|08|09|0A|0B|0F|0L|0P|0Z|10|20|21|22|23|24|25|26|27|28|2B|2D|2F|34|38|39|3B|3D|3F|40|42|44|53|54|55|57"
    "|58|72|F0|HV|P0|XX|CK"
)
OF_FUNCTIONS = f"^(P000[1-4]$|(?!{_SERVER_CLASSES}))"
"""Errors that a function of the target's owner raises: RAISE, ASSERT, or a class that the server does not use."""

OF_A_ROW = "|".join((OF_DATA, OF_SYNTAX, OF_NAMES, OF_FUNCTIONS))
"""Errors that an INSERT of a single row can fail with because of the row's data."""

OF_SEVERAL = f"{OF_A_ROW}|{_OF_KEYS}"
"""Errors that an INSERT of several rows can fail with because of the rows' data."""


def may_be_of_rows(error: Exception) -> bool:
    """Return whether the data of some rows may have caused an error of psycopg2 or ADBC.

    Writing the rows one by one may then succeed for the others.
    """
    state = sqlstate_of(error)
    return state is not None and re.search(OF_SEVERAL, state) is not None
