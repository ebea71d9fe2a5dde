"""Models of batches and their attempts."""

from __future__ import annotations

from typing import Literal

from airflow_provider_ckpt.api.models.fields import (
    ApiModel,
    BatchName,
    Counts,
    Failure,
    Moment,
    RunLink,
    Span,
)
from airflow_provider_ckpt.api.models.timeline import EventRow

BatchStateName = Literal["planned", "in_flight", "held", "delivered", "rejected", "skipped", "sent", "superseded"]


class ReceiptRow(ApiModel):
    """Receipt of a batch: the record in the sink of the batch's verdict.

    :param verdict: ``delivered``; ``rejected``: all records became dead letters; ``void``: given up, nothing was sent
    :param epoch: epoch of the attempt that claimed the receipt
    :param attempt: number of that attempt, from 1
    :param counts: numbers of records of the batch
    :param at: when the receipt was claimed
    """

    verdict: Literal["delivered", "rejected", "void"]
    epoch: int
    attempt: int
    counts: Counts
    at: Moment


class BatchRow(Span):
    """A batch of the present generation, with its range of positions and the state of its attempts.

    The ledger has such a row for each batch beyond a checkpoint, and, until its receipt is known, for each batch that
    was sent with at-most-once delivery. Of all other batches below a checkpoint, the ledger has only receipts.

    :param batch: name of the batch
    :param partition: id of the partition
    :param generation: generation of the batch
    :param seq: number of the batch in its partition and generation, from 0
    :param state: state of the batch. ``superseded``: replaced by a receipt in the sink for the same positions; for the
        other states see ``Fate``
    :param blocks: whether the batch is unresolved (planned, in flight or held), so that the checkpoint cannot pass it
    :param records: number of records that planning counted or estimated; None if planning knew no number
    :param instruction: the verdict that the next attempt is to obtain. ``deliver``: send the records; ``reject``: store
        all records as dead letters; ``void``: give the batch up and send nothing
    :param attempts: number of attempts that were begun
    :param failures: number of attempts that failed in the present round
    :param round: number of the present round of attempts, from 1; the delivery policy limits the attempts of a round
    :param deaths: number of times that a Spark executor died while this batch was the only one in its wave
    :param cancelled: whether the batch was cancelled by a user, and was neither started again nor resolved since then
    :param waits_for: ``run``: the batch is sent by the next wave or run; ``time``: it is not sent before
        ``not_before``; ``person``: it is held until a user releases or skips it; None if it is in flight or resolved
    :param not_before: time before which the next attempt does not begin; None if it may begin at once
    :param epoch: epoch of the open attempt; None unless the batch is in flight
    :param error: newest error of the batch; None without one
    :param receipt: receipt of the batch; None if the ledger knows none
    """

    batch: BatchName
    partition: str
    generation: int
    seq: int
    state: BatchStateName
    blocks: bool
    records: int | None
    instruction: Literal["deliver", "reject", "void"]
    attempts: int
    failures: int
    round: int
    deaths: int
    cancelled: bool
    waits_for: Literal["run", "time", "person"] | None
    not_before: Moment | None
    epoch: int | None
    error: Failure | None
    receipt: ReceiptRow | None


class BatchPage(ApiModel):
    """Page of batches, ordered by partition and number.

    :param items: the batches of this page
    :param next: cursor of the next page; None on the last page
    :param by_state: number of batches by state, of all pages, counted without the filter by state
    """

    items: list[BatchRow]
    next: str | None
    by_state: dict[str, int]


class Attempt(ApiModel):
    """One execution of a batch.

    :param number: number of the attempt, from 1
    :param epoch: epoch of the lease under which the attempt was made
    :param owner: owner of that lease
    :param run: the Airflow task that owned the lease; None if no task did, but for example a command
    :param began_at: when the attempt began
    :param ended_at: when the attempt ended; None while it is open
    :param outcome: outcome of the attempt, such as ``delivered`` or ``failed``; None while it is open
    :param error_type: error type of the attempt; None without an error
    """

    number: int
    epoch: int
    owner: str
    run: RunLink | None
    began_at: Moment
    ended_at: Moment | None
    outcome: str | None
    error_type: str | None


class BatchDetail(ApiModel):
    """One batch with its attempts, dead letters and events.

    :param batch: name of the batch
    :param row: range and state of the batch; None if the ledger no longer stores them, because the checkpoint has
        passed the batch, or a newer generation has begun
    :param remark: explanation why ``row`` is None; None if there is a row
    :param blocked_batches: number of resolved batches beyond the checkpoint, if this batch is the first unresolved one
        of its partition, so that the checkpoint cannot pass it; else 0
    :param attempts: attempts that the ledger still stores, oldest first
    :param dead_letters: number of dead letters of the batch by error type
    :param events: newest events of the batch in the audit log, newest first; at most 100
    """

    batch: BatchName
    row: BatchRow | None
    remark: str | None
    blocked_batches: int
    attempts: list[Attempt]
    dead_letters: dict[str, int]
    events: list[EventRow]
