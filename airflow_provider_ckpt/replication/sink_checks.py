"""Refuses a sink that is not as this ledger left it, before anything is begun there (semantics, 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import SinkChangedError
from airflow_provider_ckpt.core.sink_standing import Difference, SinkStanding, SinkState, describe, differences

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.protocols import Sink
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import Setup


def compare(ledger: Ledger, pipeline: str, sink: Sink) -> tuple[SinkStanding, SinkState]:
    """Return the sink's state as the ledger left it, and its state now.

    The ledger is read first, so that everything it knows was in the sink before the sink is read, even if others work
    on the sink meanwhile.

    :param ledger: the ledger
    :param pipeline: the pipeline's name
    :param sink: the pipeline's sink
    """
    known, expected = ledger.sink_standing(pipeline), ledger.expected_receipts(pipeline)
    claims = sink.claims()
    missing = sink.missing(expected) if expected else ()
    return known, SinkState(claims.epoch, claims.target, sink.location, claims.set_back, missing)


def refuse_changed(setup: Setup, sink: Sink, *, sent: bool = False) -> SinkState:
    """Raise an error if the sink is not as the ledger left it; otherwise return its state.

    :param setup: the pipeline's setup
    :param sink: the pipeline's sink
    :param sent: whether this run has sent something already
    :raises SinkChangedError: if the sink is not as this ledger left it; names the differences and what a person can do
    """
    name = setup.pipeline.name
    known, found = compare(setup.ledger, name, sink)
    seen = differences(known, found)
    if not seen:
        return found
    told = describe(known, found, seen)
    nothing = "" if sent else " Nothing was sent."
    if Difference.OTHER_LOCATION in seen:
        raise SinkChangedError(
            f"the sink is another one: {told}.{nothing}",
            pipeline=name,
            hint=f"Give this pipeline a name of its own, or say that the move is meant: `airflow ckpt move {name} "
            '--reason "..."`.',
        )
    raise SinkChangedError(
        f"the sink is not as this ledger left it: {told}. It was restored from an older copy, failed over without its "
        f"last transactions, emptied or made anew, so rows that were delivered may be gone.{nothing}",
        pipeline=name,
        hint=f"Look with `airflow ckpt accept-sink {name} --resend --dry-run`. Then let it have again what it has no "
        f'receipt for (`airflow ckpt accept-sink {name} --resend --reason "..."`), or go on from the checkpoint '
        "(`--keep`).",
    )
