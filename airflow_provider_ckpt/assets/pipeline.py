"""The asset of a pipeline, ``ckpt://<name>``: what its runs have brought to its target, with the positions reached.

Operators declare the one alias :data:`RUNS` and name the asset when a run has ended: so a DAG can be parsed without the
pipeline's name, and a run that moved nothing gives no event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context

SCHEME = "ckpt"

RUNS = AssetAlias(SCHEME)
"""Through this alias every run gives its event; a DAG that is scheduled on it follows all pipelines."""


def pipeline_asset(name: str) -> Asset:
    """The asset to schedule a DAG on that follows a pipeline.

    :param name: the pipeline's
    """
    return Asset(f"{SCHEME}://{name}")


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Airflow's check of an asset's URI.

    :raises ValueError: unless it is ``ckpt://<pipeline>``
    """
    if not uri.netloc or uri.path not in ("", "/") or uri.query:
        raise ValueError("the URI of a pipeline's asset is ckpt://<name of the pipeline>")
    return uri._replace(path="")


def announce(context: Context, summary: dict[str, Any]) -> bool:
    """Give the event of a run that has ended, unless the newest one told of the same positions.

    Assets that the DAG's author declared as ``outlets`` get the same ``extra``; Airflow gives their event for every
    task that succeeds.

    :param summary: the run's, as XCom carries it
    :returns: whether the pipeline's own asset gets an event
    """
    extra = tell_outlets(context, summary)
    events = context["outlet_events"]
    asset = pipeline_asset(summary["pipeline"])
    if _reached(_newest(asset)) == _reached(extra):
        return False
    events[RUNS].add(asset, extra=extra)
    return True


def tell_outlets(context: Context, summary: dict[str, Any]) -> dict[str, Any]:
    """Put what a run has reached into the events of the assets that the DAG's author declared as ``outlets``.

    :param summary: the run's, as XCom carries it
    :returns: what was put there
    """
    extra = positions(summary)
    for outlet in context["task"].outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra.update(extra)
    return extra


def positions(summary: dict[str, Any]) -> dict[str, Any]:
    """What an event tells of a run.

    :returns: ``{"pipeline", "epoch", "generation", "run", "checkpoint", "records"}``; ``checkpoint`` holds positions
        before and after by source partition
    """
    return {name: summary[name] for name in ("pipeline", "epoch", "generation", "run", "checkpoint", "records")}


def _reached(extra: dict[str, Any] | None) -> Any:
    if extra is None:
        return None
    checkpoint = extra.get("checkpoint") or {}
    return extra.get("generation"), {name: marks["after"] for name, marks in checkpoint.items()}


def _newest(asset: Asset) -> dict[str, Any] | None:
    """What the newest event told; None if there is none."""
    from airflow.sdk.exceptions import AirflowRuntimeError
    from airflow.sdk.execution_time.context import InletEventsAccessors

    try:
        events = list(InletEventsAccessors([asset])[asset].ascending(False).limit(1))
    except AirflowRuntimeError:  # Airflow does not know the asset yet
        return None
    return events[0].extra if events else None
