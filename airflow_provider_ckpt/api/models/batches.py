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
    """Receipt of a batch: the sink's proof of its verdict."""

    verdict: Literal["delivered", "rejected", "void"]
    epoch: int
    attempt: int
    counts: Counts
    at: Moment


class BatchRow(Span):
    """Batch that the ledger has as such: one beyond a checkpoint, or sent at most once and not confirmed.

    :param batch: name of the batch
    :param partition: its partition
    :param generation: its generation
    :param seq: its number
    :param state: its state
    :param blocks: whether it is unresolved, so that the checkpoint does not pass it
    :param records: number of records, as planned; None if the source does not know
    :param instruction: what the next attempt does: deliver, reject or void
    :param attempts: number of attempts
    :param failures: number of attempts that failed in this round
    :param round: number of the round of attempts
    :param deaths: number of executors that died with this batch alone
    :param cancelled: whether it was cancelled, so that the checkpoint waits at it
    :param waits_for: ``run``: the next run; ``time``: ``not_before``; ``person``: a release or skip; None if it is in
        flight or resolved
    :param not_before: time before which it is not sent again; None without one
    :param epoch: epoch of its newest attempt
    :param error: newest error; None without one
    :param receipt: receipt; None if it has none
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
    """Page of batches, ordered by partition and number; ``next`` is the next page's cursor, None on the last one.

    :param by_state: number of batches by state, for all pages and without the filter by state
    """

    items: list[BatchRow]
    next: str | None
    by_state: dict[str, int]


class Attempt(ApiModel):
    """Attempt of a batch.

    :param number: number of the attempt, from 1
    :param epoch: its epoch
    :param owner: run that made it
    :param run: task of a DAG run that it is; None for another owner
    :param began_at: when it began
    :param ended_at: when it ended; None while it is open
    :param outcome: its outcome; None while it is open
    :param error_type: error type; None unless it failed
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
    """One batch in full.

    :param batch: name of the batch
    :param row: what the ledger stores of it; None if the checkpoint has passed it and its receipt is merged
    :param remark: why there is no row; None if there is one
    :param blocked_batches: number of resolved batches of its partition that wait for it, if it is the first unresolved
        one; else 0
    :param attempts: attempts that the ledger still has, oldest first
    :param dead_letters: number of its dead letters by error type
    :param events: its newest events, newest first, at most 100
    """

    batch: BatchName
    row: BatchRow | None
    remark: str | None
    blocked_batches: int
    attempts: list[Attempt]
    dead_letters: dict[str, int]
    events: list[EventRow]
