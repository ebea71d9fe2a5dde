"""The control columns that travel beside the data between the reader, the transform and the delivery of a lane.

Each record carries its batch and position. Each batch ends with one marker row, so that an empty batch is still a batch
and the sum of its records can be checked.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.protocols import POSITION

LANE = "__lane"
"""int: the lane's index in its wave."""

BATCH = "__batch"
"""int: the batch's index in its lane."""

READ = "__read"
"""bigint: null on records; on a marker row, how many records were read, or -1 if the batch was not attempted."""

FAILURE = "__failure"
"""string: on a marker row, why reading failed, as JSON of :class:`ErrorInfo`."""

PLAIN = "__plain"
"""boolean, of records that are to be decoded from JSON: whether they are plain, see ``plain.py``."""

VERDICT = "__verdict"
"""string, after the transform: null for a record to deliver, ``filtered``, or the error type of a rejected one."""

MESSAGE = "__message"
"""string: why a record was rejected."""

ORIGINAL = "__original"
"""struct: the source's columns; null, or all of them empty, unless the record was rejected."""

OUTCOME = "outcome"
"""string: the one column of a wave's result, one :class:`Outcome` as JSON a row."""

FILTERED = "filtered"

NOT_ATTEMPTED = -1

CONTROL = (LANE, BATCH, POSITION, READ, FAILURE)
