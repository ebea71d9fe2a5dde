"""Distinguish, by SQLSTATE, errors of the server that the data of single rows can cause from all other errors.

``core/error_policy.py`` decides the consequence of each. The patterns are used in Python and in PostgreSQL alike. They
are never applied to the duplicate key of a batch's own receipt (23505): the receipt is claimed before any row is
written (``receipt_claim.py``).
"""

from __future__ import annotations

import re

from airflow_provider_ckpt.connectors.postgres.client import sqlstate_of

OF_DATA = "^(22|23|54)"
"""Pattern of SQLSTATEs of a value that is out of range, malformed, against a constraint, or too large for an index."""

_OF_KEYS = "^21"
"""Pattern of the SQLSTATE of two rows of one upsert that have the same key, for example because a trigger changes it.
"""

OF_SYNTAX = "^(42601|42602|XX000)$"
"""Pattern of SQLSTATEs of a text that its type's input function cannot parse, such as that of hstore or jsonpath.

Other causes have the same codes, so a cast of the value alone must confirm the error.
"""

OF_NAMES = "^(3F000|42704|42725|42883|42P01)$"
"""Pattern of SQLSTATEs of a value of ``regclass``, ``regtype`` … that names no existing object.

In columns of other types, errors with these codes are not caused by the row's data.
"""

_SERVER_CLASSES = (
    "00|01|02|03|08|09|0A|0B|0F|0L|0P|0Z|10|20|21|22|23|24|25|26|27|28|2B|2D|2F|34|38|39|3B|3D|3F|40|42|44|53|54|55|57"
    "|58|72|F0|HV|P0|XX|CK"
)
OF_FUNCTIONS = f"^(P000[1-4]$|(?!{_SERVER_CLASSES}))"
"""Pattern of SQLSTATEs that a function of the target's owner raises: RAISE, ASSERT, or a class unknown to the server.
"""

OF_A_ROW = "|".join((OF_DATA, OF_SYNTAX, OF_NAMES, OF_FUNCTIONS))
"""Pattern of SQLSTATEs with which an INSERT of a single row can fail because of the row's data."""

OF_SEVERAL = f"{OF_A_ROW}|{_OF_KEYS}"
"""Pattern of SQLSTATEs with which an INSERT of several rows can fail because of the rows' data."""


def may_be_of_rows(error: Exception) -> bool:
    """Return whether the data of some rows may have caused an error, so that the other rows can still be written.

    :param error: the exception of psycopg2 or ADBC
    """
    state = sqlstate_of(error)
    return state is not None and re.search(OF_SEVERAL, state) is not None
