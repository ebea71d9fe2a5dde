"""Check a pipeline against its source and sink, and preview the plan of its next run; nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext
from airflow_provider_ckpt.connectors.source_plan import Plan, SourceFile
from airflow_provider_ckpt.connectors.source_protocol import RefreshedSource, Source
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.refresh import RefreshExtent, is_unpublished
from airflow_provider_ckpt.core.routes import Route
from airflow_provider_ckpt.ledger.types import PartitionRecord
from airflow_provider_ckpt.replication.own_output import refuse_own_output
from airflow_provider_ckpt.replication.refuse_unsupported_delivery import refuse_unsupported_delivery
from airflow_provider_ckpt.replication.run import refuse_changed_sink
from airflow_provider_ckpt.replication.run.late_records import unread_finder
from airflow_provider_ckpt.replication.run.plan import Planner
from airflow_provider_ckpt.replication.run.refresh import refreshes_due
from airflow_provider_ckpt.replication.run.refuse_other_ledger import refuse_other_ledgers
from airflow_provider_ckpt.replication.setup import OpenConnectors, PipelineContext, pass_source_columns

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

T = TypeVar("T")

_PLACEHOLDER_LEDGER = "00000000-0000-0000-0000-000000000000"
"""Placeholder ledger id for a sink that is only checked."""


def find_problems(pipeline: Pipeline, connections: Callable[[str], Connection]) -> list[str]:
    """Check a pipeline against its source, sink and connections, and return the error messages; empty without problems.

    :param pipeline: the pipeline's declaration
    :param connections: function that returns the connection with a given id; called for each connection of the pipeline
    """
    found: list[str] = []
    with ExitStack() as stack:
        source = _try(found, lambda: _open_source(pipeline, connections, stack))
        sink = _try(found, lambda: _open_sink(pipeline, connections, stack))
        if source is not None:
            if sink is not None:
                pass_source_columns(pipeline, source, sink)
            _try(found, source.check)
            readable = not found
            shape = _try(found, source.shape)
            if shape is not None and sink is not None and pipeline.transform.passes_unchanged:
                _try(found, lambda: sink.check_columns(shape.columns))
        if sink is not None:
            before = len(found)
            _try(found, sink.check)
            if source is not None and readable and len(found) == before:
                _try(found, lambda: refuse_own_output(pipeline, source, sink))
            _try(found, lambda: refuse_unsupported_delivery(pipeline, sink))
        name = pipeline.run.connection
        if name is not None:
            _try(found, lambda: connections(name))
    return list(dict.fromkeys(found))


def _open_source(pipeline: Pipeline, connections: Callable[[str], Connection], stack: ExitStack) -> Source:
    """Open the pipeline's source and return it; closing ``stack`` closes the source.

    :param pipeline: the pipeline's declaration
    :param connections: function that returns the connection with a given id
    :param stack: stack to which the closing of the source is added
    """
    named = pipeline.source.connection
    source = registry.open_source(pipeline, connections(named) if named else None)
    stack.callback(source.close)
    return source


def _open_sink(pipeline: Pipeline, connections: Callable[[str], Connection], stack: ExitStack) -> Sink:
    """Open the pipeline's sink and return it; closing ``stack`` closes the sink.

    The sink gets a placeholder in place of a ledger's id, since it is only checked.

    :param pipeline: the pipeline's declaration
    :param connections: function that returns the connection with a given id
    :param stack: stack to which the closing of the sink is added
    """
    named, dead_letters = pipeline.sink.connection, pipeline.dead_letter_connection
    context = SinkContext(_PLACEHOLDER_LEDGER, pipeline.name)
    sink = registry.open_sink(
        pipeline, connections(named) if named else None, context, connections(dead_letters) if dead_letters else None
    )
    stack.callback(sink.close)
    return sink


def _try(found: list[str], action: Callable[[], T]) -> T | None:
    """Call a function and return its result; if it raises a :class:`CkptError`, record the message and return None.

    :param found: error messages so far, to which the message is added
    :param action: the function
    """
    try:
        return action()
    except CkptError as error:
        found.append(error.info.message)
        return None


def preview(setup: PipelineContext) -> dict[str, Any]:
    """Return the plan that a run starting now would make, and the number of waiting batches, as a JSON-ready document.

    :param setup: the pipeline with its ledger and connections
    :raises CkptError: if an error would keep a run from starting
    """
    opened = OpenConnectors(setup)
    try:
        opened.check()
        refuse_other_ledgers(setup, opened.sink.claims())
        refuse_changed_sink.refuse_changed(setup, opened.sink)
        return _preview_document(setup, opened)
    except CkptError as error:
        error.pipeline = error.pipeline or setup.pipeline.name
        raise
    finally:
        opened.close()


def _preview_document(setup: PipelineContext, opened: OpenConnectors) -> dict[str, Any]:
    """Plan as a run would, without storing the plan, and return the document of :func:`preview`.

    :param setup: the pipeline with its ledger
    :param opened: the pipeline's source and sink, open
    """
    name, source = setup.pipeline.name, opened.source
    stored = setup.ledger.partitions(name)
    records, files = _with_new_partitions(setup, source, stored)
    if isinstance(source, RefreshedSource):
        records = {name: _with_new_refresh(source, name, record) for name, record in records.items()}
    phases = sorted({record.partition.phase.value for record in stored.values()})
    plan = Plan()
    if set(phases) <= {Phase.RUNNING.value}:
        unread = unread_finder(setup, source, opened.sink, records) if stored else None
        planner = Planner(setup.pipeline, source, records, (), unread)
        plan = planner.plan(files) if planner.budget > 0 else Plan(more=True)
    partitions = [_partition(record, plan, new=name not in stored) for name, record in sorted(records.items())]
    held = sum(item["held"] for item in partitions)
    work = sum(item["batches"] + item["waiting"] + item["in_flight"] for item in partitions)
    return {
        "pipeline": name,
        "phase": phases[0] if phases else Phase.RUNNING.value,
        "first_run": not stored,
        "starts_spark": bool(work),
        "batches": len(plan.batches),
        "records": sum(batch.records or 0 for batch in plan.batches),
        "waiting": sum(item["waiting"] for item in partitions),
        "held": held,
        "new_files": len(files) - len(setup.ledger.files(name)) + len(plan.files),
        "more": plan.more,
        "route": [Route.HOLD.value if held else Route.DONE.value],
        "notices": list(plan.notices),
        "refused": [error.info.message for error in plan.refused],
        "partitions": partitions,
        "planned": [
            {"partition": batch.partition, "from": batch.range.start, "to": batch.range.end, "records": batch.records}
            for batch in plan.batches
        ],
    }


def _with_new_partitions(
    setup: PipelineContext, source: Source, stored: Mapping[str, PartitionRecord]
) -> tuple[dict[str, PartitionRecord], list[SourceFile]]:
    """Return the ledger's partitions and source files, with the partitions and files that a run would add.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param source: the pipeline's source
    :param stored: partitions that the ledger knows
    """
    start_from = "earliest" if stored else setup.pipeline.source.start_from
    generation = max((record.partition.generation for record in stored.values()), default=1)
    records, files = dict(stored), list(setup.ledger.files(setup.pipeline.name))
    for found in source.partitions():
        if found.id not in records:
            start = source.start(found.id, start_from)
            started = Partition(found.id, generation=generation, base=start.position)
            records[found.id] = PartitionRecord(started, found.identity, {})
            files += start.files
    return records, files


def _with_new_refresh(source: RefreshedSource, name: str, record: PartitionRecord) -> PartitionRecord:
    """Return a partition as it would be after a run that starts now has begun to refresh the partition.

    The partition is returned unchanged if such a run would not begin a refresh of it.

    :param source: the pipeline's source; it takes the snapshot of a refresh, which changes nothing in the database
    :param name: id of the partition
    :param record: the partition as the ledger knows it
    """
    if not refreshes_due({name: record}):
        return record
    partition = record.partition
    extent = RefreshExtent.of(record.state)
    if extent is not None and extent.questioned and is_unpublished(partition, extent):
        return record
    begun = Partition(name, generation=partition.generation, base=partition.base, phase=partition.phase)
    return PartitionRecord(begun, record.identity, source.begin_refresh(name).to_state())


def _partition(record: PartitionRecord, plan: Plan, *, new: bool) -> dict[str, Any]:
    """Return the preview of one partition: its checkpoint, its waiting batches and its part of the plan, JSON-ready.

    :param record: the partition
    :param plan: plan of all partitions
    :param new: whether the ledger does not have the partition yet, so that a run would start it
    """
    partition = record.partition
    batches = [batch for batch in plan.batches if batch.partition == partition.id]
    states = [batch.state for batch in partition.blocking.values()]
    return {
        "partition": partition.id,
        "first_start": new,
        "checkpoint": partition.committed,
        "plan_from": min((batch.range.start for batch in batches), default=None),
        "plan_to": max((batch.range.end for batch in batches), default=None),
        "batches": len(batches),
        "records": sum(batch.records or 0 for batch in batches),
        "waiting": states.count(BatchState.PLANNED),
        "in_flight": states.count(BatchState.IN_FLIGHT),
        "held": states.count(BatchState.HELD),
        "bound": plan.bounds.get(partition.id),
    }
