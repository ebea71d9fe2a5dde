"""Summarize the tables of each database, a row for each, for the list of pipelines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from airflow_provider_ckpt.api.health import ORDER
from airflow_provider_ckpt.api.models.pipeline_list import DatabaseRow, Health
from airflow_provider_ckpt.config.database.pipeline_names import database_of_pipeline
from airflow_provider_ckpt.ledger.queries.overview import PipelineOverview

JudgedTable = tuple[PipelineOverview, Health, bool]
"""State of a pipeline, its health, and whether a run holds its lease."""


def database_rows(found: Iterable[JudgedTable]) -> list[DatabaseRow]:
    """Return a row for each database to which pipelines belong, sorted by the most urgent health of its tables.

    :param found: the pipelines; pipelines that belong to no database are left out
    """
    tables: dict[str, list[JudgedTable]] = defaultdict(list)
    for item in found:
        database = database_of_pipeline(item[0].name)
        if database is not None:
            tables[database].append(item)
    return sorted((_row(name, items) for name, items in tables.items()), key=lambda row: (ORDER[row.health], row.name))


def _row(name: str, tables: Sequence[JudgedTable]) -> DatabaseRow:
    by_health = Counter(health for _, health, _ in tables)
    done = sum(_is_done(item) for item, _, _ in tables)
    plannings = [item.planned_at for item, _, _ in tables]
    known = [at for at in plannings if at is not None]
    return DatabaseRow(
        name=name,
        health=min(by_health, key=ORDER.__getitem__),
        by_health={kind: by_health.get(kind, 0) for kind in Health},
        tables=len(tables),
        done=done,
        behind=len(tables) - done,
        held=sum(item.held > 0 for item, _, _ in tables),
        failed=sum(item.failing > 0 and not is_running for item, _, is_running in tables),
        running=sum(is_running for _, _, is_running in tables),
        dead_letters=sum(item.parked + item.replaying for item, _, _ in tables),
        planned_at=min(known) if len(known) == len(plannings) else None,
    )


def _is_done(found: PipelineOverview) -> bool:
    """Return whether the checkpoint has reached the source's end at the last planning, and no batch is unresolved.

    :param found: state of the pipeline
    """
    open_batches = found.planned + found.in_flight + found.held
    return found.planned_at is not None and found.lag == 0 and open_batches == 0
