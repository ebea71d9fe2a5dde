"""Measure the lag of a pipeline, from the checkpoints to the end of the source, without taking the lease."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.source_plan import SOURCE_END, PlanRequest, RangeToPlan
from airflow_provider_ckpt.core.lag import PartitionLag

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.setup import PipelineContext


def lag(setup: PipelineContext) -> dict[str, PartitionLag]:
    """Return the checkpoint and the end of the source of each source partition; their difference is the lag.

    Positions are bytes or rows of files, offsets of Kafka, and cursor values of a table. Planned batches that are not
    delivered count as lag, and so do Kafka records of open transactions. Rows at the end of a table do not count as
    long as running transactions may still add rows between them.

    :param setup: the pipeline with its ledger and connections
    :raises SourceError: if the source cannot be reached
    """
    name = setup.pipeline.name
    records = setup.ledger.partitions(name)
    connection = setup.connection(setup.pipeline.source.connection)
    with closing(registry.open_source(setup.pipeline, connection)) as source:
        committed, todos, files = {}, [], setup.ledger.files(name)
        for partition in source.partitions():
            record = records.get(partition.id)
            if record is None:
                # As a run would start it: partitions that appear later start at the earliest position, see acquire.py.
                start = source.start(partition.id, "earliest" if records else setup.pipeline.source.start_from)
                committed[partition.id] = tail = start.position
                files += start.files
            else:
                committed[partition.id], tail = record.partition.committed, record.partition.planned_end
            todos.append(RangeToPlan(partition.id, tail))
        states = {known: record.state for known, record in records.items()}
        plan = source.plan(PlanRequest(todos, None, 1, files, states, lag_only=True))
    ends = {todo.partition: max(plan.bounds.get(todo.partition, todo.start), todo.start) for todo in todos}
    reached = {partition: plan.states.get(partition, {}).get(SOURCE_END, 0) for partition in ends}
    return {name: PartitionLag(committed[name], max(end, reached[name])) for name, end in ends.items()}
