"""``work_asset``: an asset to schedule a pipeline's own DAG on, so that it runs when there is enough to do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher

from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.triggers.work import CkptWorkTrigger

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


def work_asset(
    pipeline: str | dict[str, Any] | Pipeline,
    *,
    at_least: int = 1,
    longest_wait: timedelta | float = timedelta(hours=1),
    look_every: timedelta | float = timedelta(minutes=1),
    ckpt_conn_id: str = DEFAULT_CONNECTION,
) -> Asset:
    """An asset that gets an event whenever a pipeline has enough to do, or something has waited for long enough::

        with DAG("orders", schedule=work_asset("orders", at_least=10_000), max_active_runs=1): ...

    The triggerer asks the source, so it needs the same connections and reaches the same files as a worker.

    :param pipeline: its name in the ledger, or its declaration: then it need not have run before
    :param at_least: so many positions of all source partitions are worth a run
    :param longest_wait: nothing waits longer than this, however little it is
    :param look_every: how often to look
    :param ckpt_conn_id: the ledger's connection
    """
    declaration = pipeline if isinstance(pipeline, str | dict) else pipeline.document()
    name = declaration if isinstance(declaration, str) else str(declaration["name"])
    trigger = CkptWorkTrigger(
        pipeline=declaration,
        at_least=at_least,
        longest_wait=longest_wait,
        every=look_every,
        ckpt_conn_id=ckpt_conn_id,
    )
    return Asset(f"x-ckpt-work://{name}", watchers=[AssetWatcher(name=f"work of {name}", trigger=trigger)])
