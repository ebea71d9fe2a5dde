"""Sets apart the raw records that a transform is not to take: decoding one, Spark needs many times its size of memory.

None of them enters the JVM. The batch's marker names them, and where the batch is delivered they are read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.spark.dead_letters import originals
from airflow_provider_ckpt.spark.record_positions import Places

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.batch_content import DeadLetter
    from airflow_provider_ckpt.connectors.protocols import Reader
    from airflow_provider_ckpt.core.wave import BatchTask


def apart(records: pa.RecordBatch, largest: int) -> tuple[pa.RecordBatch, list[tuple[int, int]]]:
    """The records that a transform takes, and of the others position and bytes.

    :param records: position, then the raw columns
    :param largest: bytes of a value
    """
    import pyarrow.compute as pc

    sizes = pc.fill_null(pc.binary_length(records.column("value")), 0)
    larger = pc.greater(sizes, largest)
    if not larger.true_count:
        return records, []
    found = zip(*(column.filter(larger).to_pylist() for column in (records.column(0), sizes)), strict=True)
    return records.filter(pc.invert(larger)), list(found)


def letters(reader: Reader, task: BatchTask, large: Sequence[tuple[int, int]]) -> list[DeadLetter]:
    """The dead letters of records that were set apart.

    :param large: as :func:`apart` gives it, of all records of the batch
    """
    import pyarrow as pa

    if not large:
        return []
    places = Places(pa.chunked_array([[position for position, _ in large]]))
    errors = {
        number: ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, f"{size:,} bytes, more than transform.max_record_bytes")
        for number, (_, size) in enumerate(large)
    }
    return originals.reread(reader, task, places, errors, raw=True)
