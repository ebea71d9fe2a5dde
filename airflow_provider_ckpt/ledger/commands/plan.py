"""Commands that store a pipeline's declaration, its new partitions, and its planned batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from airflow_provider_ckpt.connectors.source_plan import Plan, SourceFile, SourcePartition
from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.errors import LedgerStateError, SourceError
from airflow_provider_ckpt.core.low_watermark import EXPIRED
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.task_lease_owner import dag_run_of, task_of
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.store import bulk_sql, tables
from airflow_provider_ckpt.ledger.store import events as event_store
from airflow_provider_ckpt.ledger.store import partitions as partition_store
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork


def declare(work: UnitOfWork, document: Mapping[str, Any]) -> None:
    """Store a pipeline's declaration in the ledger; if it has changed, record an event with the changed keys.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param document: the declaration, JSON-ready and free of secrets
    """
    columns = tables.pipeline.c
    of_pipeline = columns.name == work.lease.pipeline
    before: Mapping[str, Any] = (
        work.connection.execute(sa.select(columns.document).where(of_pipeline)).scalar_one() or {}
    )
    changed = sorted(key for key in {*before, *document} if before.get(key) != document.get(key))
    if not changed:
        return
    work.connection.execute(tables.pipeline.update().where(of_pipeline).values(document=dict(document)))
    detail = {
        "before": {key: before[key] for key in changed if key in before},
        "after": {key: document[key] for key in changed if key in document},
    }
    bulk_sql.insert(work.connection, tables.event, [event_store.event_row(work.lease, work.now, "declared", detail)])


def start_partitions(
    work: UnitOfWork, partitions: Mapping[SourcePartition, int], files: Sequence[SourceFile] = ()
) -> None:
    """Store source partitions that the ledger does not know yet, each with its first position as the checkpoint.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param partitions: first position of each source partition; of known partitions only the identity is checked
    :param files: for a source of files, the files from whose sizes the first positions of new partitions were computed
    :raises LedgerStateError: if these files do not continue the pipeline's list of files
    :raises SourceError: if the source of a known partition was recreated or replaced since it was started
    """
    fresh: list[partition_store.LoadedPartition] = []
    generation = work.pipeline_state.generation
    for source, base in partitions.items():
        known = work.stored.get(source.id)
        if known is None:
            fresh.append(
                partition_store.LoadedPartition(
                    Partition(source.id, generation=generation, base=base, phase=work.pipeline_state.phase),
                    source.identity,
                    None,
                    {},
                )
            )
        elif known.identity != source.identity:
            raise SourceError(
                f"partition {source.id!r} has changed since this pipeline was started: it was {known.identity}, "
                f"and is {source.identity} now. The source was recreated or points somewhere else, so its positions "
                "mean other records.",
                pipeline=work.lease.pipeline,
                position=known.partition.committed,
                hint="Point the pipeline at the old source again, or give it a new name to start from the beginning.",
            )
    if not fresh:
        return
    for item in fresh:
        item.moved_at = work.now
        work.stored[item.partition.id] = item
    pipeline = work.lease.pipeline
    bulk_sql.insert(work.connection, tables.partition, [item.row(pipeline) for item in fresh])
    bulk_sql.insert(
        work.connection,
        tables.generation,
        [
            {
                "pipeline": pipeline,
                "generation": work.pipeline_state.generation,
                "partition": item.partition.id,
                "base": item.partition.base,
                "started_at": work.now,
                "reason": "first start",
            }
            for item in fresh
        ],
    )
    _store_files(work, files)
    detail = {
        "partitions": {item.partition.id: {"base": item.partition.base, "identity": item.identity} for item in fresh}
    }
    bulk_sql.insert(
        work.connection, tables.event, [event_store.event_row(work.lease, work.now, "partitions_started", detail)]
    )


def plan(work: UnitOfWork, found: Plan) -> list[Batch]:
    """Store the result of a planning: new batches, newly discovered files, closed bounds, and the source's state.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param found: the result of the source's planning
    :return: the new batches
    :raises LedgerStateError: if the pipeline is draining or stopped, a range neither continues its partition nor fills
        a gap, or a file does not continue the pipeline's list of files
    """
    batches: list[Batch] = []
    for planned in found.batches:
        item = work.item(planned.partition)
        partition = item.partition
        if planned.range.start != partition.planned_end:
            partition_store.load_all_batches(
                work.connection, work.lease.pipeline, item
            )  # all are needed to decide whether the range fills a gap
        seq = partition.next_seq
        work.events += partition.plan(planned.range, records=planned.records)
        batches.append(partition.batches[seq])
        if planned.expired:
            lost = {"range": [planned.range.start, planned.range.end]}
            work.events.append(Event(EXPIRED, partition.id, partition.generation, seq, lost))
    _store_files(work, found.files)
    for name, bound in found.bounds.items():
        work.item(name).bound = bound
    for name, state in found.states.items():
        work.item(name).state = dict(state)
    detail = {
        "batches": len(batches),
        "records": sum(batch.records or 0 for batch in batches),
        "ranges": event_store.merged_ranges(batches),
        "files": len(found.files),
        "more": found.more,
    }
    work.write("planned", detail)
    _record_planning(work)
    return batches


def _record_planning(work: UnitOfWork) -> None:
    """Store the time of a planning and, if the lease holder is an Airflow task, its DAG id and task id.

    Users' rights on the DAGs that have planned a pipeline decide whether they may see the pipeline and act on it.
    """
    pipeline = work.lease.pipeline
    of_pipeline = tables.pipeline.c.name == pipeline
    work.connection.execute(tables.pipeline.update().where(of_pipeline).values(planned_at=work.now))
    run, task = dag_run_of(work.lease.owner), task_of(work.lease.owner)
    if run is not None and task is not None:
        row = {"pipeline": pipeline, "dag_id": run[0], "task_id": task[0]}
        bulk_sql.insert_missing(work.connection, tables.pipeline_task, [row])


def _store_files(work: UnitOfWork, files: Sequence[SourceFile]) -> None:
    if not files:
        return
    pipeline = work.lease.pipeline
    columns = tables.source_file.c
    last = work.connection.execute(
        sa.select(columns.ordinal, columns.base + columns.size)
        .where(columns.pipeline == pipeline)
        .order_by(columns.ordinal.desc())
        .limit(1)
    ).one_or_none()
    ordinal, base = (0, files[0].base) if last is None else (last[0] + 1, last[1])
    for file in files:
        if (file.ordinal, file.base) != (ordinal, base):
            raise LedgerStateError(
                f"file {file.path} was found as number {file.ordinal} at {file.base}, but number {ordinal} at {base} "
                "is next.",
                pipeline=pipeline,
                hint="Another run has discovered files at the same time; run again.",
            )
        ordinal, base = ordinal + 1, base + file.size
    bulk_sql.insert(
        work.connection,
        tables.source_file,
        [
            {
                "pipeline": pipeline,
                "ordinal": file.ordinal,
                "path": file.path,
                "base": file.base,
                "size": file.size,
                "etag": file.etag,
                "found_at": work.now,
            }
            for file in files
        ],
    )
