"""The control columns that travel beside the data between the reader, the transform and the delivery of a lane.

Each record carries its batch and position. Each batch ends with one marker row, so that an empty batch is still a batch
and the sum of its records can be checked. They are few: Spark does some work for every column of every record.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.protocols import POSITION

BATCH = "__batch"
"""bigint: the lane's index in its wave in the upper 32 bits, the batch's index in its lane in the lower ones."""

MARK = "__mark"
"""string: null on records; on a marker row a JSON object: how many records were ``read``, and the
``failure`` that kept others from being, an :class:`ErrorInfo`."""

PLAIN = "__plain"
"""struct, of records that are to be decoded from JSON: the decoded fields of a plain one, see ``plain.py``."""

CORRUPT = "__corrupt"
"""string, the last field of a decoded record: the text of one that Spark's parser could not take."""

VERDICT = "__verdict"
"""string, after the transform: null for a record to deliver, ``filtered``, or of a rejected one the error type, a space
and why."""

ORIGINAL = "__original"
"""The source's columns, as ``packing.py`` packs them; nothing unless the record was rejected."""

OUTCOME = "outcome"
"""string: the one column of a wave's result, one :class:`Outcome` as JSON a row."""

FILTERED = "filtered"

NOT_ATTEMPTED = -1
"""So many records were read of a batch that was not attempted."""

CONTROL = (BATCH, POSITION, MARK)

_LANE = 32


def batch_number(lane: int, index: int) -> int:
    """What :data:`BATCH` holds of a batch.

    :param lane: its lane's index in the wave
    :param index: its own in the lane
    """
    return lane << _LANE | index


def lane_and_index(number: int) -> tuple[int, int]:
    """The inverse of :func:`batch_number`."""
    return number >> _LANE, number & (1 << _LANE) - 1
