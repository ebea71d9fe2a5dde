"""Routes of the list of pipelines and of one pipeline: state, audit, timeline, events, declaration."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, HTTPException, Query

from airflow_provider_ckpt.api import cursors, views
from airflow_provider_ckpt.api.access import Access, AccessDep, Seen, no_such_pipeline
from airflow_provider_ckpt.api.databases import database_rows
from airflow_provider_ckpt.api.health import ORDER, judge
from airflow_provider_ckpt.api.ledgers import OpenedLedger
from airflow_provider_ckpt.api.models.fields import Moment
from airflow_provider_ckpt.api.models.pipeline_detail import Accounted, Declaration, Gap, PipelineDetail, Violation
from airflow_provider_ckpt.api.models.pipeline_list import Health, PipelineList
from airflow_provider_ckpt.api.models.timeline import ActionFlag, EventPage, RunBar, Timeline
from airflow_provider_ckpt.api.models.user import Me
from airflow_provider_ckpt.api.routes.parameters import Cursor, Limit, Text, Texts, batch_key
from airflow_provider_ckpt.config.database.pipeline_names import database_of_pipeline
from airflow_provider_ckpt.config.pipeline import without_conf
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.queries.overview import PipelineOverview

router = APIRouter(tags=["pipelines"])

_DAY = timedelta(days=1)
_LIST_POINTS, _DETAIL_POINTS, _TIMELINE_POINTS = 24, 48, 200
_MAX_SPAN = timedelta(days=90)
_AUDIT_AGE = 30.0
_MAX_LISTED = 100

_audits: dict[tuple[str, str], tuple[float, Accounted]] = {}
_audit_lock = Lock()


@router.get("/me", operation_id="get_me")
def get_me(access: AccessDep) -> Me:
    """Return the user who is signed in, and whether they are an administrator."""
    user = access.user
    return Me(id=str(user.get_id()), name=user.get_name(), administrator=access.is_administrator)


@router.get("/pipelines", operation_id="list_pipelines")
def list_pipelines(
    ledger: OpenedLedger,
    access: AccessDep,
    search: Text = None,
    health: Annotated[list[Health], Query(max_length=10)] = [],  # noqa: B006  # FastAPI copies it
    needs_me: bool | None = None,
    database: Text = None,
    dag_id: Text = None,
    task_id: Text = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PipelineList:
    """Return a page of the pipelines that the user may see, with the most urgent health first.

    :param ledger: the ledger
    :param access: rights of the user
    :param search: only pipelines whose name contains this text, or that were planned by a DAG whose id contains it;
        case is ignored
    :param health: only pipelines with one of these kinds of health
    :param needs_me: True: only pipelines that need a user's attention; False: only the others; None: all
    :param database: only pipelines of this declaration of many tables
    :param dag_id: only pipelines that this DAG has planned
    :param task_id: with ``dag_id``: only pipelines that this task or task group of the DAG has planned
    :param limit: maximum number of pipelines
    :param cursor: value of ``next`` in the previous page; None for the first page
    """
    after = cursors.decode(cursor, int, float, str)
    found = ledger.overview()
    access.load(dag for item in found.pipelines for dag, _ in item.tasks)
    chosen, judged = [], []
    for item in found.pipelines:
        if not access.may_see(item.tasks) or not _matches(item, access, search, dag_id, task_id):
            continue
        if database is not None and database_of_pipeline(item.name) != database:
            continue
        is_running = views.seconds_left(item, found.at) > 0
        its_health, cause = judge(item, is_running=is_running)
        since = cause.since.timestamp() if cause.since else found.at.timestamp()
        if needs_me is None or (ORDER[its_health] <= ORDER[Health.DEAD_LETTERS]) == needs_me:
            chosen.append(((ORDER[its_health], since, item.name), its_health, item))
            judged.append((item, its_health, is_running))
    databases = database_rows(judged) if after is None else []
    by_health = Counter(item[1] for item in chosen)
    chosen = sorted(item for item in chosen if not health or item[1] in health)
    total = len(chosen)
    page = [item for item in chosen if after is None or item[0] > after][: limit + 1]
    shown = [item[2] for item in page[:limit]]
    histories = ledger.lag_history([item.name for item in shown], _times(found.at, _LIST_POINTS, _DAY))
    return PipelineList(
        items=[views.pipeline_row(item, found.at, access, histories[item.name]) for item in shown],
        next=cursors.encode(*page[limit - 1][0]) if len(page) > limit else None,
        total=total,
        by_health={kind: by_health.get(kind, 0) for kind in Health},
        databases=databases[:_MAX_LISTED],
        databases_left_out=max(0, len(databases) - _MAX_LISTED),
        as_of=found.at,
    )


def _matches(
    found: PipelineOverview, access: Access, search: str | None, dag_id: str | None, task_id: str | None
) -> bool:
    """Return whether a pipeline meets the filters of the list.

    :param found: state of the pipeline
    :param access: rights of the user
    :param search: text that the pipeline's name, or the id of a visible DAG that has planned it, must contain; None for
        no filter
    :param dag_id: id of a DAG that must have planned the pipeline; None for no filter
    :param task_id: id of a task of that DAG; the task itself or its task group must have planned the pipeline. None for
        no filter
    """
    if search is not None:
        names = [found.name, *access.visible_dags(found.tasks)]
        if not any(search.lower() in name.lower() for name in names):
            return False
    if dag_id is None:
        return True
    return any(
        dag == dag_id and (task_id is None or task == task_id or task_id.startswith(f"{task}."))
        for dag, task in found.tasks
    )


def _times(end: datetime, points: int, span: timedelta) -> list[datetime]:
    """Return times that divide a span evenly, oldest first, from the span's start to its end.

    :param end: end of the span
    :param points: number of times, at least 2
    :param span: length of the span
    """
    return [end - span * (points - 1 - number) / (points - 1) for number in range(points)]


@router.get("/pipelines/{pipeline}", operation_id="get_pipeline")
def get_pipeline(found: Seen, ledger: OpenedLedger, access: AccessDep) -> PipelineDetail:
    """Return one pipeline with its partitions, its stored actions, and its refreshes that are not published.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param access: rights of the user
    """
    now = ledger.overview(found.name)
    if not now.pipelines:
        raise no_such_pipeline(found.name)
    state, at = now.pipelines[0], now.at
    history = ledger.lag_history([found.name], _times(at, _DETAIL_POINTS, _DAY))[found.name]
    rows, total = ledger.partition_rows(found.name)
    partitions = [views.partition_row(row) for row in rows]
    settled = sum((Counts(**row.settled.model_dump()) for row in partitions), Counts())
    actions = ledger.stored_action_page(found.name)
    return PipelineDetail(
        **dict(views.pipeline_row(state, at, access, history)),
        generation=state.generation,
        settled=views.counts(settled),
        partition_rows=partitions,
        partitions_left_out=total - len(partitions),
        actions=[views.stored_action_row(row) for row in actions],
        refreshes=[views.refresh(item) for item in ledger.refreshes(found.name)],
    )


@router.get("/pipelines/{pipeline}/accounted", operation_id="get_accounted")
def get_accounted(found: Seen, ledger: OpenedLedger) -> Accounted:
    """Audit a pipeline quickly: return whether batches or receipts cover every planned position.

    The result may be up to 30 seconds old.
    """
    key = (ledger.id, found.name)
    with _audit_lock:
        cached = _audits.get(key)
    if cached is None or time.monotonic() - cached[0] > _AUDIT_AGE:
        cached = (time.monotonic(), _audit(ledger, found.name))
        with _audit_lock:
            for old in [name for name, item in _audits.items() if time.monotonic() - item[0] > _AUDIT_AGE]:
                del _audits[old]
            _audits[key] = cached
    return cached[1]


def _audit(ledger: Ledger, pipeline: str) -> Accounted:
    moment = datetime.now(UTC)
    audit = ledger.audit(pipeline, quick=True)
    gaps = [
        Gap(partition=name, start=start, end=end)
        for name, account in audit["accounted"].items()
        for start, end in account["unaccounted"]
    ]
    violations = [
        Violation(**item | {"message": views.text(item["message"])}) for item in audit["violations"][:_MAX_LISTED]
    ]
    checked = {name: audit["checked"][name] for name in ("partitions", "batches", "receipts")}
    return Accounted(
        ok=audit["ok"] and not gaps, checked_at=moment, gaps=gaps[:_MAX_LISTED], violations=violations, **checked
    )


@router.get("/pipelines/{pipeline}/timeline", operation_id="get_timeline")
def get_timeline(found: Seen, ledger: OpenedLedger, start: Moment | None = None, end: Moment | None = None) -> Timeline:
    """Return the leases, users' actions and planned and committed positions of a pipeline in a period.

    Without an end, the period ends now; without a start, it begins 24 hours before its end. A period of more than
    90 days is refused with status 422.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param start: start of the period
    :param end: end of the period, exclusive
    """
    until = end or datetime.now(UTC)
    since = start or until - _DAY
    if not timedelta(0) < until - since <= _MAX_SPAN:
        raise HTTPException(422, "The span must end after its start and have at most 90 days.")
    marks = ledger.marks(found.name, since, until)
    history = ledger.lag_history([found.name], _times(until, _TIMELINE_POINTS, until - since))[found.name]
    return Timeline(
        start=since,
        end=until,
        history=views.lag_points(history),
        runs=[
            RunBar(
                owner=views.text(span.owner) or "",
                run=views.run_link(span.owner),
                epoch=span.epoch,
                started_at=span.started_at,
                ended_at=span.ended_at,
                end=span.end,
            )
            for span in marks.leases
        ],
        actions=[
            ActionFlag(
                event=item.id,
                at=item.at,
                kind=item.kind,
                actor=views.text(item.actor),
                reason=views.text(item.reason),
            )
            for item in marks.actions
        ],
        left_out=marks.left_out,
    )


@router.get("/pipelines/{pipeline}/events", operation_id="list_events")
def list_events(
    found: Seen,
    ledger: OpenedLedger,
    kind: Texts = [],  # noqa: B006  # FastAPI copies it
    actor: Text = None,
    batch: Text = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> EventPage:
    """Return a page of the audit log of a pipeline, newest events first.

    Each request searches at most 20,000 events, so a page may be empty although there is a next page.

    :param found: the pipeline of the path
    :param ledger: the ledger
    :param kind: only events of one of these kinds
    :param actor: only events of this actor
    :param batch: only events of the batch of this name
    :param limit: maximum number of events
    :param cursor: value of ``next`` in the previous page; None for the first page
    """
    after = cursors.decode(cursor, int)
    key = None if batch is None else batch_key(batch)
    rows, following = ledger.event_page(
        found.name, before=after[0] if after else None, limit=limit, kinds=kind, actor=actor, key=key
    )
    return EventPage(
        items=[views.event_row(row) for row in rows], next=None if following is None else cursors.encode(following)
    )


@router.get("/pipelines/{pipeline}/declaration", operation_id="get_declaration")
def get_declaration(found: Seen, ledger: OpenedLedger) -> Declaration:
    """Return the declaration of a pipeline as its newest run has stored it.

    It contains no passwords of connections, and ``***`` in place of the values of ``run.conf``, but it does contain the
    values of environment variables.
    """
    stored: dict[str, Any] | None = ledger.declaration(found.name)
    document = None if stored is None else without_conf(stored)
    text = None if document is None else yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return Declaration(yaml=text, document=document)
