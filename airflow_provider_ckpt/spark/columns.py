"""Control columns that travel beside the data from a lane's reader through the transform to delivery.

Each record carries its batch and its position. Each batch ends with one marker row, so that an empty batch arrives too
and the number of its records can be checked. There are few control columns, because every column costs Spark time for
every record.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.source_protocol import POSITION

BATCH = "__batch"
"""bigint: the lane's index in its wave in the upper 32 bits, the batch's index in its lane in the lower 32 bits."""

MARKER = "__mark"
"""string: null on records; on a marker row a JSON object with the number of records ``read``, the ``failure`` that
ended reading (an :class:`ErrorInfo`, or null), and position and size of the ``large`` records that were left out.
"""

FLAT_JSON = "__plain"
"""struct, only where records are decoded from JSON: the fields of a record that the reader has decoded, else null. See
``plain_json.py``.
"""

CORRUPT = "__corrupt"
"""string, the last field of a decoded record: the record's text if Spark's parser could not parse it."""

VERDICT = "__verdict"
"""string, after the transform: null for a record to deliver, ``filtered``, or for a rejected record the error type, a
space and the message.
"""

ORIGINAL = "__original"
"""The source's columns of a record, as ``original_columns.py`` packs them, or a placeholder. They are present on
rejected records, and on all records of a source that Spark reads.
"""

OUTCOME = "outcome"
"""string: the only column of a wave's result; each row is one :class:`Outcome`, or one deferred batch, as JSON."""

FILTERED = "filtered"

NOT_ATTEMPTED = -1
"""Sentinel read count of a batch that was not attempted."""

CONTROL = (BATCH, POSITION, MARKER)

_LANE = 32


def batch_number(lane: int, index: int) -> int:
    """Return the value of :data:`BATCH` for a batch.

    :param lane: index of its lane in the wave
    :param index: index of the batch in its lane
    """
    return lane << _LANE | index


def lane_and_index(number: int) -> tuple[int, int]:
    """Return the lane's index and the batch's index that a value of :data:`BATCH` encodes."""
    return number >> _LANE, number & (1 << _LANE) - 1
