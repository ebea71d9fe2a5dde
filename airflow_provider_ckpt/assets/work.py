"""``work_asset``: an asset as the schedule of a pipeline's DAG, so that the DAG runs when the lag is large enough."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher

from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.triggers.start_on_lag import CkptWorkTrigger

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


def work_asset(
    pipeline: str | dict[str, Any] | Pipeline,
    *,
    at_least: int = 1,
    longest_wait: timedelta | float = timedelta(hours=1),
    check_every: timedelta | float = timedelta(minutes=1),
    ckpt_conn_id: str = DEFAULT_CONNECTION,
) -> Asset:
    """Return an asset that gets an event when the pipeline's lag is large enough, or records have waited long enough::

        with DAG("orders", schedule=work_asset("orders", at_least=10_000), max_active_runs=1): ...

    The triggerer reads the lag from the source, so it needs the same connections and files as a worker.

    :param pipeline: name of the pipeline in the ledger, or its declaration; with a declaration, the pipeline need not
        have run before
    :param at_least: number of new positions, over all source partitions, from which a run is started at once
    :param longest_wait: longest time (a timedelta, or seconds) that any new record waits for a run
    :param check_every: time between checks (a timedelta, or seconds)
    :param ckpt_conn_id: Airflow connection of the ledger
    """
    declaration = pipeline if isinstance(pipeline, str | dict) else pipeline.document()
    name = declaration if isinstance(declaration, str) else str(declaration["name"])
    trigger = CkptWorkTrigger(
        pipeline=declaration,
        at_least=at_least,
        longest_wait=longest_wait,
        every=check_every,
        ckpt_conn_id=ckpt_conn_id,
    )
    return Asset(f"x-ckpt-work://{name}", watchers=[AssetWatcher(name=f"work of {name}", trigger=trigger)])
