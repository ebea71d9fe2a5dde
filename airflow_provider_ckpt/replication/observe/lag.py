"""How far the source is ahead of the checkpoint; asks ledger and source, takes no lease and changes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.protocols import REACHES, PlanRequest, Todo

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.setup import Setup


def lag(setup: Setup) -> dict[str, int]:
    """Per source partition, how many positions a run that began now would have before it.

    Positions are bytes or rows of files, offsets of Kafka, and of a table whatever its cursor counts. What is planned
    and not delivered is part of it, and so is what waits in Kafka for an open transaction. Rows of a table to which
    transactions that take longer than a moment may still add are not.

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
                # As a run would begin it: those that come later begin at the earliest, see acquire.py.
                start = source.start(partition.id, "earliest" if records else setup.pipeline.source.start_from)
                committed[partition.id] = tail = start.position
                files += start.files
            else:
                committed[partition.id], tail = record.partition.committed, record.partition.planned_end
            todos.append(Todo(partition.id, tail))
        states = {known: record.state for known, record in records.items()}
        plan = source.plan(PlanRequest(todos, None, 1, files, states, look=True))
    ends = {todo.partition: max(plan.bounds.get(todo.partition, todo.start), todo.start) for todo in todos}
    reached = {partition: plan.states.get(partition, {}).get(REACHES, 0) for partition in ends}
    return {partition: max(end, reached[partition]) - committed[partition] for partition, end in ends.items()}
