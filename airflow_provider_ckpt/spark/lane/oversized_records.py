"""Keep raw records above ``transform.max_record_bytes`` out of the JVM.

Spark needs many times a record's size to decode it. The batch's marker row lists these records, and they are read from
the source again for their dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.spark.dead_letters import originals
from airflow_provider_ckpt.spark.record_positions import RecordPositions

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.batch_content import DeadLetter
    from airflow_provider_ckpt.connectors.source_protocol import Reader
    from airflow_provider_ckpt.core.wave_messages import BatchTask


def separate(records: pa.RecordBatch, largest: int) -> tuple[pa.RecordBatch, list[tuple[int, int]]]:
    """Divide records by size: return those within the limit, and position and size in bytes of each larger record.

    :param records: records of a source of bytes: the position, then columns such as ``value``
    :param largest: largest size of a record's ``value`` in bytes (``transform.max_record_bytes``)
    """
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.binary_length(records.column("value")), 0)
    larger = pc.greater(sizes, largest)
    if not larger.true_count:
        return records, []
    found = zip(*(column.filter(larger).to_pylist() for column in (records.column(0), sizes)), strict=True)
    return records.filter(pc.invert(larger)), list(found)


def dead_letters(reader: Reader, task: BatchTask, large: Sequence[tuple[int, int]]) -> list[DeadLetter]:
    """Read the oversized records of a batch again, and return their dead letters.

    :param reader: reader of the batch's source
    :param task: the batch
    :param large: position and size in bytes of each oversized record of the batch, as :func:`separate` returns them
    """
    import pyarrow as pa

    if not large:
        return []
    positions = RecordPositions(pa.chunked_array([[position for position, _ in large]]))
    errors = {
        number: ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, f"{size:,} bytes, more than transform.max_record_bytes")
        for number, (_, size) in enumerate(large)
    }
    return originals.from_source(reader, task, positions, errors, raw=True)
