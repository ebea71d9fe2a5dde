"""The delivery policy's keys: StreamForge's as they stand, and ours beside them, with the docs' defaults."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from airflow_provider_ckpt.core.policy import OnExhausted, RetryPolicy

Delivery = Literal["at_least_once", "at_most_once", "exactly_once"]
"""The three guarantees."""


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


Whole = Annotated[int, BeforeValidator(_not_bool), Field(le=2**63 - 1)]
"""A whole number that a 64-bit column can hold; pydantic alone would take ``true`` for 1."""

Millis = Annotated[int, BeforeValidator(_not_bool), Field(le=2**31 - 1)]
"""Milliseconds, 24 days at most."""

Number = Annotated[float, BeforeValidator(_not_bool)]
"""A number that may have decimals."""


class Part(BaseModel):
    """Base of all parts of a declaration: immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CommitStrategy(Part):
    """When delivered work is settled into the ledger.

    :param commit_interval: records per micro-batch, obeyed exactly; ``auto`` lets the source choose
    :param commit_interval_ms: settle at least this often
    :param commit_mode: ``sync`` settles each batch of a lane before the next is sent
    """

    manual_commit: bool = True
    commit_mode: Literal["async", "sync"] = "async"
    commit_interval: Literal["auto"] | Whole = "auto"
    commit_interval_ms: Millis | None = Field(default=None, ge=1)
    commit_timeout_ms: Millis = Field(default=5000, ge=1)
    auto_commit_interval_ms: Millis = Field(default=5000, ge=1)
    checkpoint_after_ms: Millis = Field(default=1000, ge=0)
    min_checkpoint_count: Whole = Field(default=5, ge=1)
    max_checkpoint_count: Whole = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if isinstance(self.commit_interval, int) and self.commit_interval < 1:
            raise ValueError("commit_interval must be at least 1 record")
        if self.min_checkpoint_count > self.max_checkpoint_count:
            raise ValueError("min_checkpoint_count must not exceed max_checkpoint_count")
        return self

    @property
    def records_per_batch(self) -> int | None:
        """The number to obey, or None for ``auto``."""
        return None if self.commit_interval == "auto" else self.commit_interval

    @property
    def wave_seconds(self) -> float:
        """How long a wave goes on starting batches before it is settled."""
        if self.commit_interval_ms is not None:
            return self.commit_interval_ms / 1000
        if not self.manual_commit:
            return self.auto_commit_interval_ms / 1000
        return 10.0


class Retry(Part):
    """How often and how soon a failed batch is tried again; see :class:`RetryPolicy` for the units."""

    max_attempts: Whole = Field(default=3, ge=1)
    initial_delay_ms: Millis = Field(default=100, ge=0)
    max_delay_ms: Millis = Field(default=30_000, ge=0)
    multiplier: Number = Field(default=2.0, ge=1, le=1000)
    jitter: Number = Field(default=0.1, ge=0, le=1)
    rounds: Whole = Field(default=3, ge=1)
    on_exhausted: OnExhausted = OnExhausted.DLQ

    @property
    def core(self) -> RetryPolicy:
        """The same, as the core takes it."""
        return RetryPolicy(**self.model_dump())


class DeadLetterQueue(Part):
    """Where records go that can never be delivered.

    :param enabled: without it, an error that calls for a dead letter halts the run; nothing is dropped
    :param sink: ``same`` writes them with the batch: a table beside a PostgreSQL target, JSON lines beside
        a Delta table, ``topic`` for a Kafka target
    """

    enabled: bool = True
    sink: Literal["same"] = "same"
    topic: str = "streamforge-dlq"
    brokers: str | None = None
    compression: str = "none"
    include_original_headers: bool = True
    include_stack_trace: bool = False
    header_prefix: str = "x-ckpt-"
    max_dlq_retries: Whole = Field(default=3, ge=0)


class ErrorHandling(Part):
    """What a missing or null field means."""

    missing_field_behavior: Literal["error", "null", "skip"] = "error"
    null_value_behavior: Literal["passthrough", "error", "skip"] = "passthrough"
    cache_failure_behavior: Literal["skip", "error"] = "skip"


class Consumer(Part):
    """How batches are spread over lanes.

    :param lanes: how many at once; ``auto`` is the cores of the master
    :param max_in_flight: records planned or begun and unsettled; planning waits beyond it
    """

    strategy: Literal["auto", "pinned", "round_robin", "single"] = "auto"
    lanes: Literal["auto"] | Whole = "auto"
    max_in_flight: Whole = Field(default=500_000, ge=1)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if isinstance(self.lanes, int) and self.lanes < 1:
            raise ValueError("lanes must be at least 1")
        return self
