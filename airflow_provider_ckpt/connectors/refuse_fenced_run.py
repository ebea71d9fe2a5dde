"""Refuse a run whose epoch is not the epoch of the sink's fence.

The epoch of a fence is the highest epoch to which a run has raised it; every sink stores it in its own way. A sink
reads this epoch and passes it to the functions here, which compare it with the run's epoch. Their errors name no batch;
writers and committers add the batches with :func:`naming_batch` and :func:`name_batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import FencedError, SinkError

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.batch_content import BatchContent
    from airflow_provider_ckpt.core.wave_messages import BatchTask

W = TypeVar("W")
R = TypeVar("R")

_MAX_NAMED = 3
"""Maximum number of batches that an error names."""


def refuse_if_fenced(fenced: int, epoch: int, location: str, pipeline: str) -> None:
    """Raise an error if the fence is at a newer epoch than the run.

    :param fenced: epoch of the sink's fence, the highest epoch to which a run has raised it; 0 if it was never raised
    :param epoch: epoch of the run
    :param location: place where the fence is stored, for the message, such as ``the table /data/t``
    :param pipeline: name of the pipeline, for the message
    :raises FencedError: naming both epochs
    """
    if fenced > epoch:
        raise wrong_epoch_error(fenced, epoch, location, pipeline)


def refuse_unless_current(fenced: int, epoch: int, location: str, pipeline: str) -> None:
    """Raise an error unless the fence is at the run's epoch.

    :param fenced: epoch of the sink's fence, the highest epoch to which a run has raised it; 0 if it was never raised
    :param epoch: epoch of the run
    :param location: place where the fence is stored, for the message, such as ``the table /data/t``
    :param pipeline: name of the pipeline, for the message
    :raises FencedError: if the fence is at a newer epoch
    :raises SinkError: if the fence is at an older epoch or at none: it was not raised, or was removed since
    """
    if fenced != epoch:
        raise wrong_epoch_error(fenced, epoch, location, pipeline)


def wrong_epoch_error(fenced: int, epoch: int, location: str, pipeline: str) -> FencedError | SinkError:
    """Return the error of a run whose epoch is not the fence's: ``FencedError`` for a newer fence, else ``SinkError``.

    An older or absent fence means that it was not raised for this run, or was removed since.

    :param fenced: epoch of the sink's fence, the highest epoch to which a run has raised it; 0 if it was never raised
    :param epoch: epoch of the run
    :param location: place where the fence is stored, for the message, such as ``the table /data/t``
    :param pipeline: name of the pipeline, for the message
    """
    if fenced > epoch:
        return FencedError(
            f"the fence in {location} is at epoch {fenced}, so epoch {epoch} may not write any more.",
            pipeline=pipeline,
            hint="A newer run has taken over; nothing needs to be done.",
        )
    return SinkError(
        f"the fence in {location} is at {f'epoch {fenced}' if fenced else 'no epoch'}, not at this run's epoch "
        f"{epoch}.",
        pipeline=pipeline,
        hint="Start a new run: it raises the fence again before it sends anything.",
    )


def naming_batch(deliver: Callable[[W, BatchTask, BatchContent], R]) -> Callable[[W, BatchTask, BatchContent], R]:
    """Decorate a writer's method ``deliver`` so that each :class:`FencedError` that it raises names the batch.

    :param deliver: the method
    """

    @wraps(deliver)
    def call(self: W, task: BatchTask, content: BatchContent) -> R:
        try:
            return deliver(self, task, content)
        except FencedError as error:
            name_batches(error, [task.key])
            raise

    return call


def name_batches(error: FencedError, keys: Iterable[BatchKey]) -> None:
    """Set an error's attribute ``batch`` to the keys of the refused batches: the first three, and how many more.

    :param error: the error, which is changed
    :param keys: keys of the refused batches
    """
    names = [str(key) for key in sorted(keys)]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    error.batch = ", ".join(names[:_MAX_NAMED]) + more
