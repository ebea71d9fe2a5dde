"""Convert results of the ledger's queries to models of the API: pipelines, partitions, events, links to DAG runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow_provider_ckpt.api.access import Access
from airflow_provider_ckpt.api.health import NEED_A_PERSON, judge
from airflow_provider_ckpt.api.models.fields import Counts, RunLink, shorten
from airflow_provider_ckpt.api.models.pipeline_detail import (
    PartitionRow,
    PublicationHold,
    Refresh,
    RefreshState,
    StoredActionRow,
)
from airflow_provider_ckpt.api.models.pipeline_list import LagPoint, Lease, PipelineRow
from airflow_provider_ckpt.api.models.timeline import EventRow
from airflow_provider_ckpt.config.database.pipeline_names import database_of_pipeline
from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind, side_kind
from airflow_provider_ckpt.core.receipt import Counts as RecordCounts
from airflow_provider_ckpt.core.task_lease_owner import dag_run_of, task_of
from airflow_provider_ckpt.ledger.queries import lag_history
from airflow_provider_ckpt.ledger.queries.overview import PipelineOverview
from airflow_provider_ckpt.ledger.queries.refreshes import RefreshProgress
from airflow_provider_ckpt.replication.process_lease_owner import is_dead

_DETAIL_LENGTH = 8_000
_TEXT_LENGTH = 2_000


def run_link(owner: str | None) -> RunLink | None:
    """Return the task of a DAG run that an owner's name denotes; None for an owner that is not a task.

    :param owner: name of the owner of a lease, an attempt or an event
    """
    run, task = dag_run_of(owner), task_of(owner)
    if run is None or task is None:
        return None
    return RunLink(dag_id=run[0], run_id=run[1], task_id=task[0], map_index=task[1])


def text(value: str | None) -> str | None:
    """Shorten a text that comes from users or other systems to 2,000 characters; None stays None.

    :param value: the text
    """
    return None if value is None else shorten(value, _TEXT_LENGTH)


def counts(found: RecordCounts | Mapping[str, Any]) -> Counts:
    """Return the API model of record counts.

    :param found: the counts, or a row with columns of these names
    """
    data = found.to_json() if isinstance(found, RecordCounts) else found
    return Counts(**{name: data[name] for name in ("read", "delivered", "filtered", "dead_lettered")})


def seconds_left(found: PipelineOverview, at: datetime) -> float:
    """Return the seconds until a pipeline's lease expires; 0 if it was released, has expired, or its owner has ended.

    An owner is known to have ended only if it is a process of this machine, see :func:`is_dead`.

    :param found: state of the pipeline
    :param at: time by the ledger's clock at which ``found`` was read
    """
    if found.owner is None or found.expires_at is None or is_dead(found.owner):
        return 0.0
    return max(0.0, (found.expires_at - at).total_seconds())


def lease(found: PipelineOverview, at: datetime) -> Lease:
    """Return the model of a pipeline's lease.

    :param found: state of the pipeline
    :param at: time of the snapshot
    """
    left = seconds_left(found, at)
    return Lease(
        held=left > 0,
        owner=text(found.owner),
        run=run_link(found.owner),
        epoch=found.epoch,
        expires_at=found.expires_at,
        renewed_at=found.renewed_at,
        seconds_left=round(left, 1),
    )


def pipeline_row(
    found: PipelineOverview, at: datetime, access: Access, history: Sequence[lag_history.LagPoint]
) -> PipelineRow:
    """Return the row of a pipeline in the list.

    :param found: state of the pipeline
    :param at: time of the snapshot
    :param access: rights of the user
    :param history: the pipeline's lag over time
    """
    held = lease(found, at)
    health, cause = judge(found, is_running=held.held)
    return PipelineRow(
        name=found.name,
        database=database_of_pipeline(found.name),
        health=health,
        needs_me=health in NEED_A_PERSON,
        cause=cause,
        phase=found.phase,
        lag=found.lag,
        lag_as_of=found.planned_at,
        rate=found.rate,
        history=lag_points(history),
        progress=found.done / found.all if found.done is not None and found.all else None,
        partitions=found.partitions,
        planned=found.planned,
        in_flight=found.in_flight,
        held=found.held,
        dead_letters=found.parked + found.replaying,
        stored_actions=found.stored_actions,
        lease=held,
        dags=access.visible_dags(found.tasks),
        may_act=access.may_act(found.tasks),
        may_delete=access.may_delete(found.tasks),
    )


def lag_points(history: Sequence[lag_history.LagPoint]) -> list[LagPoint]:
    """Return the API models of a pipeline's lag over time; see :class:`LagPoint` for the meaning of the numbers.

    :param history: the lag over time
    """
    first = min((point.committed for point in history), default=0)
    return [
        LagPoint(at=point.at, planned=point.planned - first, committed=point.committed - first) for point in history
    ]


def partition_row(row: Mapping[str, Any]) -> PartitionRow:
    """Return the API model of a partition.

    :param row: the partition's row in the ledger
    """
    name = row["partition"]
    return PartitionRow(
        id=name,
        kind=partition_kind(name),
        source=BatchKey(row["generation"], name, 0).source,
        generation=row["generation"],
        base=row["base"],
        low=row["low"],
        committed=row["committed"],
        planned_end=row["planned_end"],
        bound=row["bound"],
        ends_at=row["side_end"],
        moved_at=row["moved_at"],
        settled=counts(row),
        settled_batches=row["batches_settled"],
        rejected=row["rejected"],
        skipped=row["skipped"],
        sent=row["sent"],
        batches=row["states"],
    )


def partition_kind(name: str) -> Any:
    """Return the kind of a partition: ``source``, or the purpose of a side partition.

    :param name: id of the partition
    """
    kind: SideKind | None = side_kind(name)
    return "source" if kind is None else kind.value


def stored_action_row(row: Mapping[str, Any]) -> StoredActionRow:
    """Return the API model of a stored action.

    :param row: the action's row in the ledger
    """
    result = row["result"] or {}
    refused = result.get("refusal")
    state = "pending" if row["applied_at"] is None else "refused" if refused is not None else "applied"
    return StoredActionRow(
        number=row["id"],
        kind=row["kind"],
        actor=shorten(row["actor"], _TEXT_LENGTH),
        reason=text(row["reason"]),
        stored_at=row["stored_at"],
        state=state,
        ended_at=row["applied_at"],
        refusal=text(refused),
    )


def refresh(found: RefreshProgress) -> Refresh:
    """Return the API model of a refresh that is not published.

    :param found: the refresh and its progress, as the ledger returned them
    """
    held = found.held
    return Refresh(
        partition=found.partition,
        generation=found.generation,
        state=_refresh_state(found),
        since=found.begun_at,
        positions=found.positions,
        staged_positions=found.staged_positions,
        staged_batches=found.staged_batches,
        open_batches=found.open_batches,
        held_batches=found.held_batches,
        skipped_batches=found.skipped_batches,
        hold=None if held is None else PublicationHold(batch=str(held.key), reason=text(held.reason), since=held.since),
    )


def _refresh_state(found: RefreshProgress) -> RefreshState:
    if found.held is not None:
        return RefreshState.HELD
    if found.released:
        return RefreshState.RELEASED
    return RefreshState.STAGED if found.staged_positions == found.positions else RefreshState.STAGING


def event_row(row: Mapping[str, Any]) -> EventRow:
    """Return the API model of an event of the audit log.

    :param row: the event's row in the ledger
    """
    detail = row["detail"]
    reason = detail.get("reason") if isinstance(detail, Mapping) else None
    key = None
    if row["seq"] is not None and row["partition"] is not None:
        key = BatchKey(row["generation"], row["partition"], row["seq"])
    return EventRow(
        id=row["id"],
        at=row["at"],
        kind=row["kind"],
        actor=text(row["actor"]),
        run=run_link(row["actor"]),
        epoch=row["epoch"],
        batch=None if key is None else str(key),
        partition=row["partition"],
        reason=text(reason) if isinstance(reason, str) else None,
        detail=shorten(json.dumps(detail, ensure_ascii=False, default=str), _DETAIL_LENGTH),
        recorded_at=row["recorded_at"],
        database_user=row["database_user"],
    )
