"""Names of the control columns, which accompany a record's data from the reader through the transform to delivery.

Each record carries the number of its batch and its source position. Each batch ends with one marker row, which states
how many records were read: so delivery can check the count, and also sees batches without records. There are few
control columns, because every column costs Spark time for every record.
"""

from __future__ import annotations

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.connectors.source_protocol import POSITION

BATCH = "__batch"
"""Column of type bigint that identifies a record's batch within its wave (one Spark job): the index of the lane (one
Spark task) in the upper 32 bits, the index of the batch in its lane in the lower 32 bits."""

MARKER = "__mark"
"""Column of type string: null on a record. On a marker row it is a JSON object: ``read``, the number of records that
were read; ``failure``, the :class:`ErrorInfo` that ended reading, or null; and ``large``, the position and size of the
records that were left out because they are too large.
"""

FLAT_JSON = "__plain"
"""Column of type struct, present only if readers decode flat JSON records: the fields of a record that the reader has
decoded, else null. See ``plain_json.py``.
"""

CORRUPT = "__corrupt"
"""Field of type string, the last one of a decoded record: the record's text if Spark's parser could not parse it, else
null.
"""

VERDICT = "__verdict"
"""Column of type string, added by the transform: null for a record to deliver, ``filtered`` for a record that
``transform.where`` excludes, and for a rejected record the error type, a space and the message.
"""

ORIGINAL = "__original"
"""Column with the values of a record's source columns, packed as ``original_columns.py`` describes. Rejected records
have these values, and so have all records of a source that Spark itself reads (JDBC); every other record has a
placeholder.
"""

OUTCOME = "outcome"
"""Column of type string, the only column of a wave's result. Each row holds as JSON either one :class:`Outcome` or one
deferred batch, which the driver must examine before the batch is run again."""

FILTERED = "filtered"

NOT_ATTEMPTED = -1
"""Value of ``read`` on the marker row of a batch that its lane did not attempt. Real counts are never negative."""

CONTROL = (BATCH, POSITION, MARKER)

RESERVED = frozenset({*CONTROL, FLAT_JSON, CORRUPT, VERDICT, ORIGINAL, ROW_NUMBER})
"""Names of the internal columns, in lower case. A source column with one of these names cannot be written to the
target.
"""

_LANE = 32


def batch_number(lane: int, index: int) -> int:
    """Return the value of the control column :data:`BATCH` for the records of a batch.

    :param lane: index of the batch's lane in the wave, from 0
    :param index: index of the batch in its lane, from 0
    """
    return lane << _LANE | index


def lane_and_index(number: int) -> tuple[int, int]:
    """Return the lane's index in the wave and the batch's index in the lane; inverse of :func:`batch_number`.

    :param number: a value of the control column :data:`BATCH`
    """
    return number >> _LANE, number & (1 << _LANE) - 1
