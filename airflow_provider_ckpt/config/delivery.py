"""The delivery policy's keys: StreamForge's as they stand, and ours beside them, with the docs' defaults."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from airflow_provider_ckpt.core.cadence import Cadence
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

    :param manual_commit: ``False`` settles by timer alone
    :param commit_mode: ``sync`` settles each batch of a lane before the next is sent
    :param commit_interval: records per micro-batch, obeyed exactly; ``auto`` lets the source choose
    :param commit_interval_ms: settle at least this often
    :param commit_timeout_ms: how long a statement of a settlement may take, or wait for somebody else's
    :param auto_commit_interval_ms: the timer
    :param checkpoint_after_ms: after this long, ``min_checkpoint_count`` batches are worth a settlement
    :param min_checkpoint_count: fewer batches by which the checkpoint could move wait for the wave's end
    :param max_checkpoint_count: so many are settled at once
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
    def cadence(self) -> Cadence:
        """When a wave that is still running is settled, as the core takes it."""
        every = self.commit_interval_ms if self.manual_commit else self.auto_commit_interval_ms
        return Cadence(
            after=self.checkpoint_after_ms / 1000,
            least=self.min_checkpoint_count,
            most=self.max_checkpoint_count,
            at_least_every=None if every is None else every / 1000,
            timed=not self.manual_commit,
        )


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


class LetterPlace(StrEnum):
    """Where dead letters go."""

    SAME = "same"
    KAFKA = "kafka"
    POSTGRES = "postgres"
    FILES = "files"


def _with_brokers(data: object) -> object:
    """StreamForge's ``brokers`` name a cluster for dead letters; there it needs no other word."""
    if isinstance(data, Mapping) and data.get("brokers") and "sink" not in data:
        return {**data, "sink": LetterPlace.KAFKA.value}
    return data


class DeadLetterQueue(Part):
    """Where records go that can never be delivered.

    :param enabled: without it, an error that calls for a dead letter halts the run; nothing is dropped
    :param sink: ``same`` writes them with the batch: a table beside a PostgreSQL target, JSON lines beside a table of
        files, ``topic`` for a Kafka target. Elsewhere they are written before the batch's receipt. With ``brokers`` and
        no word here, ``kafka``
    :param connection: Airflow connection id, for ``kafka`` and ``postgres``; by default that of a sink or source of the
        same type
    :param topic: for ``kafka``, and for ``same`` with a Kafka target
    :param brokers: other brokers than the connection's, for ``kafka``
    :param compression: of the messages, for ``kafka``; for ``same`` with a Kafka target, of the topic when it is made
    :param table: ``schema.table`` or ``table``, for ``postgres``
    :param path: a directory, for ``files``
    :param max_dlq_retries: after the first try, a second apart; then the run halts and the checkpoint stays
    """

    enabled: bool = True
    sink: LetterPlace = LetterPlace.SAME
    connection: str | None = None
    topic: str = "streamforge-dlq"
    brokers: str | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    table: str = "ckpt_dead_letter"
    path: str | None = None
    include_original_headers: bool = True
    include_stack_trace: bool = False
    header_prefix: str = "x-ckpt-"
    max_dlq_retries: Whole = Field(default=3, ge=0)

    _kafka = model_validator(mode="before")(_with_brokers)

    @model_validator(mode="after")
    def _needs(self) -> Self:
        if self.sink is LetterPlace.FILES and not self.path:
            raise ValueError("sink: files needs path, a directory")
        if self.sink is LetterPlace.SAME and self.brokers:
            raise ValueError("brokers are those of sink: kafka; write that, or leave them out")
        return self

    @property
    def here(self) -> bool:
        """Whether dead letters are written with their batch, by the sink itself."""
        return self.enabled and self.sink is LetterPlace.SAME

    @property
    def elsewhere(self) -> bool:
        """Whether dead letters go to another place than the sink's own."""
        return self.enabled and self.sink is not LetterPlace.SAME


def _null_by_name(value: object) -> object:
    """YAML reads the word ``null`` as no value at all."""
    return "null" if value is None else value


class ErrorHandling(Part):
    """What a missing or null field means."""

    missing_field_behavior: Annotated[Literal["error", "null", "skip"], BeforeValidator(_null_by_name)] = "error"
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
