"""Refuse a sink that has changed since this ledger's last run: restored, truncated, recreated or replaced.

A run checks the sink before its first attempt begins (semantics, section 4, step 1), and once more at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sink_protocol import ComparesTargets, unwrapped
from airflow_provider_ckpt.core.changed_sink import (
    ExpectedSinkState,
    SinkDifference,
    SinkState,
    UnfinishedAcceptance,
    describe_differences,
    differences,
)
from airflow_provider_ckpt.core.errors import (
    IoError,
    LedgerStateError,
    ReceiptsUnreadableError,
    SinkChangedError,
    SinkError,
)

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sink_protocol import Sink
    from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import PipelineContext


def compare_states(
    ledger: Ledger, pipeline: str, sink: Sink, *, all_receipts: bool = False
) -> tuple[ExpectedSinkState, SinkState]:
    """Return the sink's state as the ledger expects it, and its state now.

    The ledger is read before the sink. So even while a run is delivering, every receipt that the ledger knows must be
    in the sink.

    :param ledger: the ledger
    :param pipeline: the pipeline's name
    :param sink: the pipeline's sink
    :param all_receipts: whether to read all of the sink's receipts, to find unreadable ones; if False, all are read
        only if receipts are missing or the sink reports lost rows
    """
    known, expected = ledger.expected_sink(pipeline)
    claims = sink.claims()
    missing = sink.batches_without_receipt(expected) if expected else ()
    wrong = all_receipts or bool(missing) or claims.loss_evidence is not None
    unreadable = _unreadable(sink) if wrong else None
    loss_evidence = claims.loss_evidence if claims.loss_evidence != unreadable else None
    other, opened = None, unwrapped(sink)
    if isinstance(opened, ComparesTargets) and known.target is not None and claims.target is not None:
        other = opened.compare_targets(known.target, claims.target)
    found = SinkState(
        claims.epoch, claims.target, sink.location, loss_evidence, missing, unreadable, claims.lost_batches, other
    )
    return known, found


def refuse_changed(setup: PipelineContext, sink: Sink, *, sent: bool = False) -> tuple[ExpectedSinkState, SinkState]:
    """Raise an error if the sink is not as the ledger left it; otherwise return :func:`compare_states`' result.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param sink: the pipeline's sink
    :param sent: whether this run has already sent records, for the message
    :raises SinkChangedError: if the sink is not as this ledger left it; names the differences and the commands to use
    """
    name = setup.pipeline.name
    known, found = compare_states(setup.ledger, name, sink)
    found_differences = differences(known, found)
    if not found_differences:
        return known, found
    description = describe_differences(known, found, found_differences)
    nothing = "" if sent else " Nothing was sent."
    if SinkDifference.OTHER_LOCATION in found_differences:
        raise SinkChangedError(
            f"the declared sink is not the one that this pipeline delivered to: {description}.{nothing}",
            pipeline=name,
            hint="If this is another pipeline, give it a name of its own. To deliver to the declared sink from now on, "
            f'run `airflow ckpt move {name} --reason "..."`.',
        )
    if SinkDifference.RECEIPTS_UNREADABLE in found_differences:
        raise SinkChangedError(
            f"the sink is not as this ledger left it: {description}.{nothing}",
            pipeline=name,
            hint="Restore the missing files from a backup, or from the target's previous location. If they are lost, "
            f'continue from the checkpoint with `airflow ckpt accept-sink {name} --keep --reason "..."`. It holds the '
            "batches that were started and have no readable receipt.",
        )
    if found_differences == [SinkDifference.OTHER_TARGET] and found.other_target is not None:
        raise SinkChangedError(
            f"the sink is not as this ledger left it: {description}. It has its fence and the receipts of its newest "
            f"batches, but that does not show whether it has all rows.{nothing}",
            pipeline=name,
            hint="If all rows are there, continue from the checkpoint with "
            f'`airflow ckpt accept-sink {name} --keep --reason "..."`. '
            "Otherwise, see what would be sent again with `--resend --dry-run`.",
        )
    raise SinkChangedError(
        f"the sink is not as this ledger left it: {description}. It was restored from an older copy, failed over "
        f"without its last transactions, emptied or recreated, so rows that were delivered may be gone.{nothing}",
        pipeline=name,
        hint=f"See what would be sent again with `airflow ckpt accept-sink {name} --resend --dry-run`. Then send it "
        f'(`airflow ckpt accept-sink {name} --resend --reason "..."`), or continue from the checkpoint without it '
        "(`--keep`).",
    )


def acceptance_evidence(setup: PipelineContext, sink: Sink) -> UnfinishedAcceptance:
    """Return the differences between the sink and what the ledger expects, and the batches whose rows are lost.

    An acceptance calls this before it raises the sink's fence, which hides some of the differences.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param sink: the pipeline's sink
    :raises LedgerStateError: if the sink is as the ledger left it, so that there is nothing to accept
    """
    name = setup.pipeline.name
    known, found = compare_states(setup.ledger, name, sink, all_receipts=True)
    found_differences = differences(known, found)
    if not found_differences:
        raise nothing_to_accept(name)
    before = known.unfinished_acceptance or UnfinishedAcceptance(
        frozenset(), describe_differences(known, found, found_differences)
    )
    keys = [receipt.key for receipt in readable_receipts(sink, {})]
    lost_batches = before.lost_batches.union(found.lost_batches, sink.batches_without_receipt(keys) if keys else ())
    return UnfinishedAcceptance(
        before.differences.union(found_differences) - {SinkDifference.NOT_ACCEPTED}, before.description, lost_batches
    )


def nothing_to_accept(pipeline: str) -> LedgerStateError:
    """Return the error for an attempt to accept a sink that has not changed.

    :param pipeline: name of the pipeline, for the message
    """
    return LedgerStateError(
        "the sink is as this ledger left it, so there is nothing to accept.",
        pipeline=pipeline,
        hint="To read records again, use `airflow ckpt rewind` or `airflow ckpt replay range`.",
    )


def readable_receipts(sink: Sink, known: Mapping[str, KnownReceipts]) -> list[Receipt]:
    """Return the readable receipts of the sink that the ledger does not know; an empty list if the sink cannot be read.

    :param sink: the sink
    :param known: by partition, the generation and position up to which the ledger knows all receipts
    """
    try:
        return read_receipts(sink, known)[0]
    except (SinkError, IoError):
        return []


def read_receipts(sink: Sink, known: Mapping[str, KnownReceipts]) -> tuple[list[Receipt], str | None]:
    """Return the sink's readable receipts that the ledger does not know, and a sentence about unreadable ones.

    The sentence is None if there are no unreadable receipts.

    :param sink: the sink
    :param known: by partition, the generation and position up to which the ledger knows all receipts
    :raises SinkError: if the sink cannot be read
    """
    found: list[Receipt] = []
    try:
        for receipt in sink.receipts(known):
            found.append(receipt)
    except ReceiptsUnreadableError as error:
        return found, error.message
    return found, None


def _unreadable(sink: Sink) -> str | None:
    """Return a sentence about receipts of the sink that are gone or damaged; None if no such receipts are known."""
    try:
        return read_receipts(sink, {})[1]
    except (SinkError, IoError):
        return None  # a sink without any bookkeeping is recognised by its missing receipts
