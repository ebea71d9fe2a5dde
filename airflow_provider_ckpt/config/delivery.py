"""Define the keys that declare the delivery policy: commits, retries, dead letters, and missing or null fields.

Most keys have the same names as in StreamForge, a tool that replicates Kafka topics, so that these parts of its
declarations can be used unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from airflow_provider_ckpt.config.fields import Milliseconds, Number, Section, WholeNumber
from airflow_provider_ckpt.config.installed_connectors import (
    UnknownTypeError,
    find_connector,
    installed_connectors,
    types_with,
)
from airflow_provider_ckpt.config.typed_sections import unknown_type_text
from airflow_provider_ckpt.core.on_exhausted import OnExhausted
from airflow_provider_ckpt.core.retry_policy import RetryPolicy
from airflow_provider_ckpt.core.settle_cadence import SettleCadence

DeliveryGuarantee = Literal["at_least_once", "at_most_once", "exactly_once"]
"""Delivery guarantee of a pipeline: the number of times that a record may reach the target."""


class CommitStrategy(Section):
    """Size of batches, and times at which their receipts are settled into the ledger during a wave.

    Names that end in ``_ms`` are milliseconds.

    :param manual_commit: whether a settlement depends on the number of batches by which the checkpoint can move and on
        the time (see the keys below); ``False`` settles by timer alone
    :param commit_mode: ``sync`` settles each batch of a lane before the next one is sent; ``async`` sends the next one
        without waiting
    :param commit_interval: records per batch; the source chooses if it is ``auto``
    :param commit_interval_ms: with ``manual_commit``, maximum time between two settlements; None for no limit before
        the end of the wave
    :param commit_timeout_ms: maximum time of one statement of a settlement, including its wait for locks
    :param auto_commit_interval_ms: the timer's interval, if ``manual_commit`` is false
    :param checkpoint_after_ms: time since the last settlement after which ``min_checkpoint_count`` batches are enough
        for the next one
    :param min_checkpoint_count: minimum number of batches by which the checkpoint can move, for a settlement once
        ``checkpoint_after_ms`` have passed; fewer batches wait for ``commit_interval_ms`` or the end of the wave
    :param max_checkpoint_count: if the checkpoint can move by this number of batches, they are settled without waiting
        for ``checkpoint_after_ms``
    """

    manual_commit: bool = True
    commit_mode: Literal["async", "sync"] = "async"
    commit_interval: Literal["auto"] | WholeNumber = "auto"
    commit_interval_ms: Milliseconds | None = Field(default=None, ge=1)
    commit_timeout_ms: Milliseconds = Field(default=5000, ge=1)
    auto_commit_interval_ms: Milliseconds = Field(default=5000, ge=1)
    checkpoint_after_ms: Milliseconds = Field(default=1000, ge=0)
    min_checkpoint_count: WholeNumber = Field(default=5, ge=1)
    max_checkpoint_count: WholeNumber = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if isinstance(self.commit_interval, int) and self.commit_interval < 1:
            raise ValueError("commit_interval must be at least 1 record")
        if self.min_checkpoint_count > self.max_checkpoint_count:
            raise ValueError("min_checkpoint_count must not exceed max_checkpoint_count")
        return self

    @property
    def records_per_batch(self) -> int | None:
        """Number of records per batch; None if the source chooses it (``commit_interval: auto``)."""
        return None if self.commit_interval == "auto" else self.commit_interval

    @property
    def cadence(self) -> SettleCadence:
        """Thresholds for settling receipts during a wave, converted from milliseconds to seconds."""
        every = self.commit_interval_ms if self.manual_commit else self.auto_commit_interval_ms
        return SettleCadence(
            min_interval=self.checkpoint_after_ms / 1000,
            min_batches=self.min_checkpoint_count,
            max_batches=self.max_checkpoint_count,
            max_interval=None if every is None else every / 1000,
            timer_only=not self.manual_commit,
        )


_DEFAULT = RetryPolicy()


class Retry(Section):
    """Section ``retry``: number and delay of the attempts of a failed batch. Its keys are the fields of
    :class:`RetryPolicy`.
    """

    max_attempts: WholeNumber = Field(default=_DEFAULT.max_attempts, ge=1)
    initial_delay_ms: Milliseconds = Field(default=_DEFAULT.initial_delay_ms, ge=0)
    max_delay_ms: Milliseconds = Field(default=_DEFAULT.max_delay_ms, ge=0)
    multiplier: Number = Field(default=_DEFAULT.multiplier, ge=1, le=1000)
    jitter: Number = Field(default=_DEFAULT.jitter, ge=0, le=1)
    rounds: WholeNumber = Field(default=_DEFAULT.rounds, ge=1)
    on_exhausted: OnExhausted = _DEFAULT.on_exhausted

    @property
    def policy(self) -> RetryPolicy:
        """The retry section as a :class:`RetryPolicy`, which the delivery policy uses."""
        return RetryPolicy(**self.model_dump())


SAME = "same"
"""Value of ``dead_letter_queue.sink`` for dead letters that the sink itself stores."""


def _stores_with_brokers() -> list[str]:
    """Return the connector types whose dead letter store takes ``brokers`` in place of a connection (``kafka``)."""
    stores = ((kind, connector.dead_letter_store) for kind, connector in installed_connectors())
    return [kind for kind, store in stores if store is not None and store.instead_of_connection == "brokers"]


def _store_implied_by_brokers(data: object) -> object:
    """Add ``sink`` to a ``dead_letter_queue`` section that has ``brokers`` but no ``sink``, and return the section.

    Declarations written for StreamForge have this form. The value of ``sink`` is the connector type whose store accepts
    ``brokers`` (``kafka``). All other sections are returned unchanged; so is every section if several installed types
    accept ``brokers``.
    """
    if isinstance(data, Mapping) and data.get("brokers") and "sink" not in data:
        stores = _stores_with_brokers()
        return {**data, "sink": stores[0]} if len(stores) == 1 else data
    return data


def _dead_letter_destination(value: object) -> object:
    """Return ``dead_letter_queue.sink`` if it is ``same`` or a connector type that has a dead letter store.

    :raises ValueError: if the value is neither; the message lists the supported ones
    """
    if value == SAME:
        return value
    try:
        supported = isinstance(value, str) and find_connector(value).dead_letter_store is not None
    except UnknownTypeError:
        supported = False
    if not supported:
        raise ValueError(unknown_type_text(value, [SAME, *types_with("dead_letter_store")]))
    return value


class DeadLetterQueue(Section):
    """Destination and content of dead letters: records that cannot be delivered.

    :param enabled: whether dead letters are written; if not, an error that would make a record a dead letter halts the
        run, and no record is dropped
    :param sink: ``same`` writes the dead letters with their batch: to a table beside a target in a database, to files
        of JSON lines beside a target that consists of files, to ``topic`` for a Kafka target. Any other value is the
        type of a connector with a dead letter store, which stores the dead letters before the batch's receipt is
        written. The default is ``kafka`` if ``brokers`` is given, else ``same``
    :param connection: Airflow connection id of the destination; by default the connection of the sink or source, if one
        of them has the same type
    :param topic: Kafka topic of the dead letters, for ``kafka``, and for ``same`` with a Kafka target
    :param brokers: brokers to use instead of the connection's, for ``kafka``
    :param compression: compression of the messages, for ``kafka``; for ``same`` with a Kafka target, compression of the
        topic when it is created
    :param table: table of the dead letters, as ``schema.table`` or ``table``, for ``postgres``
    :param path: directory of the dead letters, for ``files``
    :param include_original_headers: whether a dead letter contains the headers of its record
    :param include_stack_trace: whether a dead letter contains the error's stack trace
    :param header_prefix: prefix of the names of headers that describe the error
    :param max_dlq_retries: number of retries, one second apart, if dead letters cannot be written; then the run halts
        and the checkpoint does not move
    """

    enabled: bool = True
    sink: Annotated[str, BeforeValidator(_dead_letter_destination)] = SAME
    connection: str | None = None
    topic: str = "streamforge-dlq"
    brokers: str | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    table: str = "ckpt_dead_letter"
    path: str | None = None
    include_original_headers: bool = True
    include_stack_trace: bool = False
    header_prefix: str = "x-ckpt-"
    max_dlq_retries: WholeNumber = Field(default=3, ge=0)

    _implied = model_validator(mode="before")(_store_implied_by_brokers)

    @model_validator(mode="after")
    def _needs(self) -> Self:
        if self.sink == SAME and self.brokers:
            stores = " or ".join(_stores_with_brokers())
            raise ValueError(f"brokers has an effect only with sink: {stores}; write that, or leave brokers out")
        store = find_connector(self.sink).dead_letter_store if self.sink != SAME else None
        for key, meaning in store.needed.items() if store else ():
            if not getattr(self, key):
                raise ValueError(f"sink: {self.sink} needs {key}, {meaning}")
        return self

    @property
    def in_sink(self) -> bool:
        """True if dead letters are enabled and the sink itself stores them."""
        return self.enabled and self.sink == SAME

    @property
    def in_other_store(self) -> bool:
        """True if dead letters are enabled and stored elsewhere than in the sink."""
        return self.enabled and self.sink != SAME


def _null_word(value: object) -> object:
    """Return the text ``null`` for None, and any other value unchanged.

    YAML reads the unquoted word ``null``, one of the values of ``missing_field_behavior``, as None.
    """
    return "null" if value is None else value


class ErrorHandling(Section):
    """Handling of fields that a record lacks, and of fields that are null.

    :param missing_field_behavior: for a field that a record lacks: ``error``, ``null``, or ``skip`` the record
    :param null_value_behavior: for a field that is null: ``passthrough``, ``error``, or ``skip`` the record
    :param cache_failure_behavior: accepted because declarations written for StreamForge may have it; has no effect
    """

    missing_field_behavior: Annotated[Literal["error", "null", "skip"], BeforeValidator(_null_word)] = "error"
    null_value_behavior: Literal["passthrough", "error", "skip"] = "passthrough"
    cache_failure_behavior: Literal["skip", "error"] = "skip"
