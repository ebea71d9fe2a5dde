"""Asset of a pipeline, ``ckpt://<name>``: a run that moves the checkpoint adds an event with the new positions.

Operators declare the asset alias :data:`RUNS` as outlet; when a run has moved the checkpoint, they add the pipeline's
asset to the alias. So the pipeline's name need not be known when the DAG file is parsed, and a run that did not move
the checkpoint emits no event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context

SCHEME = "ckpt"

RUNS = AssetAlias(SCHEME)
"""Alias through which all runs emit their events; a DAG scheduled on it runs whenever any checkpoint has moved."""


def pipeline_asset(name: str) -> Asset:
    """Return the asset of a pipeline. A DAG scheduled on it runs whenever the pipeline's checkpoint has moved.

    :param name: name of the pipeline
    """
    return Asset(f"{SCHEME}://{name}")


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the URI of a pipeline's asset without a final slash; Airflow calls this for the scheme ``ckpt``.

    :param uri: the URI, split into its parts
    :raises ValueError: if the URI is not of the form ``ckpt://<pipeline>``
    """
    if not uri.netloc or uri.path not in ("", "/") or uri.query:
        raise ValueError("the URI of a pipeline's asset is ckpt://<name of the pipeline>")
    return uri._replace(path="")


def emit_event(context: Context, summary: dict[str, Any], *, of_this_task: bool = False) -> bool:
    """Emit the event of the pipeline's asset after a run, unless the asset's newest event has the same positions.

    The assets that the DAG declares as ``outlets`` get the event's ``extra`` too (see :func:`event_extra`); Airflow
    emits their events for every task that succeeds.

    :param context: the task's context
    :param summary: summary of the run, as its task returns it
    :param of_this_task: whether this task has just executed the whole run. If that run moved the checkpoint, its
        positions are new, and the asset's newest event need not be looked up
    :return: whether the pipeline's own asset gets an event
    """
    extra = update_outlet_events(context, summary)
    events = context["outlet_events"]
    asset = pipeline_asset(summary["pipeline"])
    moved = any(positions["before"] != positions["after"] for positions in summary["checkpoint"].values())
    if not (moved and of_this_task) and _positions_after(_newest_extra(asset)) == _positions_after(extra):
        return False
    events[RUNS].add(asset, extra=extra)
    return True


def update_outlet_events(context: Context, summary: dict[str, Any]) -> dict[str, Any]:
    """Add the positions that a run has reached to the events of the assets that the DAG declares as ``outlets``.

    :param context: the task's context
    :param summary: summary of the run, as its task returns it
    :return: the event's ``extra``, see :func:`event_extra`
    """
    extra = event_extra(summary)
    for outlet in context["task"].outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra.update(extra)
    return extra


def event_extra(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the ``extra`` of the asset event of a run.

    :param summary: summary of the run, as its task returns it
    :return: dict with the keys ``pipeline``, ``epoch``, ``generation``, ``run``, ``checkpoint`` and ``records``;
        ``checkpoint`` holds the positions before and after the run, by source partition, ``run`` the id of the run,
        and ``records`` its record counts
    """
    return {name: summary[name] for name in ("pipeline", "epoch", "generation", "run", "checkpoint", "records")}


def _positions_after(extra: dict[str, Any] | None) -> Any:
    """Return the generation of a run and its checkpoints after the run (a dict by source partition), as a pair.

    :param extra: ``extra`` of the run's asset event, see :func:`event_extra`; None if there is no event
    :return: the pair; None if ``extra`` is None
    """
    if extra is None:
        return None
    checkpoint = extra.get("checkpoint") or {}
    return extra.get("generation"), {name: positions["after"] for name, positions in checkpoint.items()}


def _newest_extra(asset: Asset) -> dict[str, Any] | None:
    """Return the ``extra`` of an asset's newest event; None if the asset has no event."""
    from airflow.sdk.exceptions import AirflowRuntimeError

    from airflow_provider_ckpt.airflow_versions import newest_event

    try:
        event = newest_event(asset)
    except AirflowRuntimeError:  # Airflow does not know the asset yet
        return None
    return event.extra if event else None
