"""Start a pipeline's partitions: the first ones as ``source.start_from`` says, later ones at their earliest position.

The first start is declared, never inferred from an empty target (semantics, section 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.source_plan import SourcePartition, Start
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.replication.run import file_lists

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ckpt.ledger.types import PartitionRecord
    from airflow_provider_ckpt.replication.run.run import Run


def first_starts(run: Run, known: Mapping[str, PartitionRecord]) -> dict[SourcePartition, Start | None]:
    """Return the start of each partition of the source; None for a partition that the ledger knows already.

    The first partitions of a pipeline start where ``source.start_from`` says. Partitions that appear in the source
    later start at their earliest position, since all their records are newer than the first start of the pipeline.

    :param run: run in progress, whose lease is held and whose source is open
    :param known: the ledger's partitions
    """
    start_from = "earliest" if known else run.pipeline.source.start_from
    return {
        partition: None if partition.id in known else run.source.start(partition.id, start_from)
        for partition in run.source.partitions()
    }


def refuse_unsuitable_columns(run: Run) -> None:
    """Refuse a first start if the sink cannot take the source's columns.

    The columns that a transform returns are checked later, since they are known only once Spark has started.

    :param run: the run, before its first fence
    :raises ConfigError: if the sink refuses columns; the error names the columns and the remedy
    """
    if not run.pipeline.transform.passes_unchanged:
        return
    try:
        shape = run.source.shape()
    except SourceError:
        return  # a directory without a Parquet file has no columns yet; any other error occurs again in planning
    run.sink.check_columns(shape.columns)


def start_partitions(
    run: Run, first: Mapping[SourcePartition, Start | None], known: Mapping[str, PartitionRecord]
) -> Mapping[str, PartitionRecord]:
    """Store the source's partitions in the ledger, and the files with which they start in the sink and the ledger.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param first: start of each partition of the source, None for a partition that the ledger knows already
    :param known: the ledger's partitions, read under the lease
    :return: the ledger's partitions now
    """
    stored_lists = file_lists.restore_lost_files(run, started=bool(known))
    starts = {
        partition: Start(known[partition.id].partition.base) if start is None else stored_lists or start
        for partition, start in first.items()
    }
    bases = {partition: start.position for partition, start in starts.items()}
    for start in starts.values():
        file_lists.store_in_sink(run, start.files, start.position)
    files = [file for start in starts.values() for file in start.files]
    records = run.ledger.start_partitions(run.lease, bases, files=files)
    run.source_verified = True
    return records
