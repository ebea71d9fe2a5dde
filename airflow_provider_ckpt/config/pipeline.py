"""Model of a pipeline's declaration; the models of its sections are in files of their own.

``docs/pipeline.rst`` describes all keys and defaults. Unknown keys are errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from airflow_provider_ckpt.config.consumer_lanes import Consumer
from airflow_provider_ckpt.config.delivery import (
    CommitStrategy,
    DeadLetterQueue,
    DeliveryGuarantee,
    ErrorHandling,
    Retry,
)
from airflow_provider_ckpt.config.fields import Section
from airflow_provider_ckpt.config.lease import LeaseSection
from airflow_provider_ckpt.config.recovery import RecoverySection
from airflow_provider_ckpt.config.refuse_contradictions import refuse_contradictions
from airflow_provider_ckpt.config.run import RunSection
from airflow_provider_ckpt.config.schedule import DagSection
from airflow_provider_ckpt.config.schema import SchemaSection
from airflow_provider_ckpt.config.transform import Transform
from airflow_provider_ckpt.config.typed_sections import AnySinkSection, AnySourceSection
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorType
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy


class Pipeline(Section):
    """Declaration of a pipeline, as its YAML file or Python code gives it.

    :param name: name, unique in the ledger: letters, digits, ``_``, ``-`` and ``.``
    :param source: source of records
    :param transform: transform of records
    :param sink: sink of records
    :param delivery: delivery guarantee
    :param commit_strategy: size of batches, and times at which receipts are settled
    :param retry: number and delay of the attempts of a batch
    :param dead_letter_queue: destination and content of dead letters
    :param error_handling: handling of missing and null fields
    :param error_policy: by error type, the action that replaces the default action
    :param consumer: distribution of batches over lanes
    :param lease: validity of the pipeline's lease, and reaction to a lease that another run holds
    :param run: the Spark that executes a run, its time budget, and whether held batches fail it
    :param recovery: detection of records that appear late in the source
    :param schema_: reaction to changes of the source's columns; the YAML key is ``schema``. None: each run reads the
        columns that the source has, and fails if the target cannot store them
    :param dag: the DAG that a DAG factory creates from the file, which does not affect the replication itself; None for
        no DAG
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
    source: AnySourceSection
    transform: Transform = Transform()
    sink: AnySinkSection
    delivery: DeliveryGuarantee = "at_least_once"
    commit_strategy: CommitStrategy = CommitStrategy()
    retry: Retry = Retry()
    dead_letter_queue: DeadLetterQueue = DeadLetterQueue()
    error_handling: ErrorHandling = ErrorHandling()
    error_policy: dict[ErrorType, ErrorAction] = Field(default_factory=dict)
    consumer: Consumer = Consumer()
    lease: LeaseSection = LeaseSection()
    run: RunSection = RunSection()
    recovery: RecoverySection = RecoverySection()
    schema_: SchemaSection | None = Field(default=None, alias="schema")
    dag: DagSection | None = None

    @model_validator(mode="after")
    def _check_compatibility(self) -> Self:
        refuse_contradictions(self)
        return self

    @property
    def dead_letter_connection(self) -> str | None:
        """Airflow connection id of a dead letter destination other than the sink.

        It is ``dead_letter_queue.connection``, or else the connection of the sink or source, if one of them has the
        destination's type. None if the sink stores the dead letters, or none of these connections is given.
        """
        queue = self.dead_letter_queue
        if not queue.in_other_store or queue.connection:
            return queue.connection if queue.in_other_store else None
        return next((part.connection for part in (self.sink, self.source) if part.type == queue.sink), None)

    @property
    def connections(self) -> frozenset[str]:
        """Ids of the Airflow connections that the source, the sink and the dead letter destination use."""
        named = (self.source.connection, self.sink.connection, self.dead_letter_connection)
        return frozenset(name for name in named if name)

    @property
    def spark_properties(self) -> dict[str, str]:
        """Spark properties of the pipeline's runs: those of ``run.conf``, and the jars that the source needs."""
        jars = [*self.source.spark_jars, *filter(None, [self.run.conf.get("spark.jars")])]
        return {**self.run.conf, **({"spark.jars": ",".join(jars)} if jars else {})}

    @property
    def pinned(self) -> bool:
        """True if a partition's batches are executed in one lane, in order (semantics, section 6)."""
        needs_order = self.sink.upserts or self.source.needs_order or self.sink.needs_order
        return self.consumer.is_pinned(needs_order=needs_order)

    @property
    def refreshes(self) -> bool:
        """True if each run reads the whole source and replaces the target's records."""
        return self.source.is_full

    @property
    def policy(self) -> DeliveryPolicy:
        """The delivery policy that ``retry``, ``dead_letter_queue`` and ``error_policy`` declare."""
        return DeliveryPolicy(self.retry.policy, self.dead_letter_queue.enabled, dict(self.error_policy))

    def document(self) -> dict[str, Any]:
        """Return the declaration as JSON-ready data without ``dag``, the form in which the ledger stores it.

        ``Pipeline.model_validate`` is the inverse. The data contains no secret unless ``run.conf`` or an environment
        variable does; secrets belong in connections.
        """
        return self.model_dump(mode="json", by_alias=True, exclude={"dag"})


def without_conf(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a declaration's document with ``***`` in place of the values of ``run.conf``, which may be secrets.

    :param document: the document, as :meth:`Pipeline.document` returns it or the ledger stores it
    """
    run = document.get("run") or {}
    conf = dict.fromkeys(run.get("conf") or (), "***")
    return {**document, "run": {**run, "conf": conf}} if conf else dict(document)
