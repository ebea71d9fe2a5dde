"""The pipeline model: lease, run and recovery, what moves (``flow.py``), and the delivery policy (``delivery.py``).

Keys and defaults are those of the delivery-policy table in the docs; unknown keys are errors.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from airflow_provider_ckpt.config.delivery import (
    CommitStrategy,
    Consumer,
    DeadLetterQueue,
    Delivery,
    ErrorHandling,
    LetterPlace,
    Part,
    Retry,
)
from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.flow import Sink, Source, Texts, Transform
from airflow_provider_ckpt.config.schedule import Dag
from airflow_provider_ckpt.core.errors import Action, ErrorType
from airflow_provider_ckpt.core.policy import Policy


class Lease(Part):
    """Who may run.

    :param ttl: a lease that is not renewed for this long may be taken over
    :param on_busy: ``wait`` for another run's lease, or ``fail`` at once
    :param wait: how long ``wait`` waits
    """

    ttl: Duration = timedelta(seconds=60)
    on_busy: Literal["wait", "fail"] = "wait"
    wait: Duration = timedelta(minutes=30)

    @model_validator(mode="after")
    def _floor(self) -> Self:
        if self.ttl < timedelta(seconds=1):
            raise ValueError("ttl must be at least 1s: the lease is renewed every third of it")
        return self


class Run(Part):
    """How a run is executed.

    :param engine: ``submit`` starts Spark by the apache-spark provider's hook, ``connect`` uses a Spark Connect server
    :param connection: the Spark connection's id; without one, ``submit`` starts a local master
    :param time_budget: plan no further wave after this long; what is left waits for the next run
    :param fail_on_hold: whether a run that ends with held batches fails
    :param conf: further Spark properties
    """

    engine: Literal["submit", "connect"] = "submit"
    connection: str | None = None
    time_budget: Duration = timedelta(hours=1)
    fail_on_hold: bool = True
    conf: Texts = Field(default_factory=dict)

    @model_validator(mode="after")
    def _server_named(self) -> Self:
        if self.engine == "connect" and self.connection is None:
            raise ValueError("engine: connect needs connection, the id of one of type spark_connect")
        return self


class Recovery(Part):
    """How late the source may show records.

    :param window: lower bound of the low watermark's distance behind the checkpoint
    :param settle_lag: what is younger is left out of a recovery listing
    """

    window: Duration = timedelta(days=7)
    settle_lag: Duration = timedelta(minutes=5)


class Pipeline(Part):
    """One replication, declared once.

    :param name: unique in the ledger: letters, digits, ``_``, ``-`` and ``.``
    :param dag: the DAG that a factory makes of the file; says nothing of the replication itself
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
    source: Source
    transform: Transform = Transform()
    sink: Sink
    delivery: Delivery = "at_least_once"
    commit_strategy: CommitStrategy = CommitStrategy()
    retry: Retry = Retry()
    dead_letter_queue: DeadLetterQueue = DeadLetterQueue()
    error_handling: ErrorHandling = ErrorHandling()
    error_policy: dict[ErrorType, Action] = Field(default_factory=dict)
    consumer: Consumer = Consumer()
    lease: Lease = Lease()
    run: Run = Run()
    recovery: Recovery = Recovery()
    dag: Dag | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.source.type == "files":
            self._files_fit()
        if self.source.type in ("postgres", "jdbc") and self.transform.decode:
            raise ValueError(f"a {self.source.type} source has columns already; leave transform.decode out")
        if self.sink.mode == "upsert" and self.consumer.strategy == "round_robin":
            raise ValueError("consumer.strategy: round_robin promises no order, so it is refused for an upsert sink")
        if "kafka" in (self.source.type, self.sink.type) and self.consumer.strategy == "round_robin":
            raise ValueError("consumer.strategy: round_robin promises no order, so it is refused for kafka")
        if self.source.type == "jdbc" and self.run.engine == "connect":
            raise ValueError("run.engine: connect cannot read a jdbc source; write submit")
        queue = self.dead_letter_queue
        wanting = {LetterPlace.KAFKA: "connection or brokers", LetterPlace.POSTGRES: "connection"}.get(queue.sink)
        if wanting and queue.elsewhere and not queue.brokers and self.letters_connection is None:
            raise ValueError(f"dead_letter_queue.sink: {queue.sink} needs {wanting}")
        return self

    def _files_fit(self) -> None:
        form, decode = self.source.format, self.transform.decode
        if form == "parquet" and decode:
            raise ValueError("Parquet files have columns already; leave transform.decode out")
        if form == "parquet" and self.error_handling.missing_field_behavior == "skip":
            raise ValueError("missing_field_behavior: skip is not supported for Parquet files; use error or null")
        if form != "parquet" and not decode:
            raise ValueError("a files source needs transform.decode (json or csv) and transform.schema")
        if (form == "jsonl" and decode != "json") or (form == "csv" and decode != "csv"):
            raise ValueError(f"source.format: {form} and transform.decode: {decode} contradict each other")

    @property
    def letters_connection(self) -> str | None:
        """The connection of a place for dead letters that is not the sink's own: its own, or one of the same type."""
        queue = self.dead_letter_queue
        if not queue.elsewhere or queue.connection:
            return queue.connection if queue.elsewhere else None
        return next((part.connection for part in (self.sink, self.source) if part.type == queue.sink.value), None)

    @property
    def connections(self) -> frozenset[str]:
        """The ids of all Airflow connections that lanes need."""
        named = (self.source.connection, self.sink.connection, self.letters_connection)
        return frozenset(name for name in named if name)

    @property
    def properties(self) -> dict[str, str]:
        """Spark's properties: those of ``run.conf``, and the jars of a driver that the source needs."""
        jars = [*self.source.jars, *filter(None, [self.run.conf.get("spark.jars")])]
        return {**self.run.conf, **({"spark.jars": ",".join(jars)} if jars else {})}

    @property
    def pinned(self) -> bool:
        """Whether a partition's batches stay in one lane, in order (semantics, section 6)."""
        if self.consumer.strategy == "auto":
            return self.sink.mode == "upsert" or "kafka" in (self.source.type, self.sink.type)
        return self.consumer.strategy != "round_robin"

    @property
    def policy(self) -> Policy:
        """The delivery policy, as the core takes it."""
        return Policy(self.retry.core, self.dead_letter_queue.enabled, dict(self.error_policy))

    def document(self) -> dict[str, Any]:
        """The declaration as JSON-ready data; ``Pipeline.model_validate`` reads it back.

        Holds no secret, unless ``run.conf`` or an expanded variable does: those belong into connections.
        """
        return self.model_dump(mode="json", by_alias=True, exclude={"dag"})
