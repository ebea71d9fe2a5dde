"""Summarise a run for the command line and XCom; the summary contains no secrets and no records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import side_generation
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.lag import lag_text
from airflow_provider_ckpt.core.receipt import Counts, Receipt
from airflow_provider_ckpt.core.routes import Route, routes

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.types import PartitionRecord


@dataclass(slots=True)
class RunSummary:
    """Summary of one run of one pipeline, merged from the summaries of its tasks, or of its parts if it paused.

    :param pipeline: name of the pipeline
    :param epoch: epoch of the lease
    :param generation: highest generation of the source partitions
    :param run: id of the run
    :param route: outcomes of the run (:class:`.Route`, such as ``hold``), by which a task group chooses the tasks that
        follow
    :param batches: number of batches that were settled in this run
    :param batches_by_state: number of unresolved batches in each state; ``sent`` has the number of batches that were
        sent at most once and have no receipt
    :param records: number of records in the settled batches: read, delivered, filtered and dead-lettered
    :param retried: number of failed attempts that are retried
    :param checkpoint: checkpoint of each partition ``before`` and ``after`` the run
    :param lag: number of positions by which the source is ahead of the checkpoint, by partition; None as long as the
        checkpoint is ``start``
    :param spark_started: whether Spark was started
    :param seconds: wall time of the run
    :param steps: seconds by step of the run, such as ``plan``
    :param errors: number of errors by error type: of dead letters, of failed batches and of lost waves
    :param expired: ranges that expired without a receipt during the run, each with ``partition`` and ``range``
    :param notices: warnings for the user, such as the source's notice of a setting that is probably not intended, or a
        change of columns that waits for planned batches
    :param target_rows: number of rows in the target; None if the sink cannot count them
    :param halted: error that halted the run; None if it did not halt
    """

    pipeline: str
    epoch: int
    generation: int = 1
    run: str = ""
    route: list[str] = field(default_factory=list)
    batches: int = 0
    batches_by_state: dict[str, int] = field(default_factory=dict)
    records: Counts = field(default_factory=Counts)
    retried: int = 0
    checkpoint: dict[str, dict[str, int]] = field(default_factory=dict)
    lag: dict[str, int | None] = field(default_factory=dict)
    spark_started: bool = False
    seconds: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    expired: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    target_rows: int | None = None
    halted: ErrorInfo | None = None

    def settled(self, receipts: Iterable[Receipt]) -> None:
        """Add settled batches and their records to the summary.

        :param receipts: receipts of the batches that were settled
        """
        for receipt in receipts:
            self.batches += 1
            self.records = self.records + receipt.counts

    def set_end_state(self, records: Mapping[str, PartitionRecord], *, unconfirmed: int) -> None:
        """Set the checkpoints after the run, the generation, the unresolved batches by state, and the route.

        :param records: the ledger's partitions at the end of the run
        :param unconfirmed: number of batches that were sent with delivery at_most_once and have no receipt
        """
        states: Counter[str] = Counter()
        waiting = 0
        for name, record in records.items():
            partition = record.partition
            self.checkpoint.setdefault(name, {"before": partition.committed, "after": 0})["after"] = partition.committed
            if not side_generation(name):
                self.generation = max(self.generation, partition.generation)
            states.update(batch.state.value for batch in partition.blocking.values())
            waiting += sum(b.state is BatchState.PLANNED and b.round > 1 for b in partition.blocking.values())
        if unconfirmed:
            states[BatchState.SENT.value] = unconfirmed
        self.batches_by_state = dict(states)
        self.route = [
            str(leaf)
            for leaf in routes(
                dead_lettered=self.records.dead_lettered, waiting=waiting, held=states[BatchState.HELD.value]
            )
        ]

    def count_errors(self, counts: Mapping[str, int]) -> None:
        """Add numbers of errors by type to ``errors``.

        :param counts: number of errors to add, by error type
        """
        self.errors = dict(Counter(self.errors) + Counter(dict(counts)))

    def add_seconds(self, step: str, seconds: float) -> None:
        """Add wall time to a step of the run.

        :param step: name of the step, such as ``plan``
        :param seconds: the time to add
        """
        self.steps[step] = round(self.steps.get(step, 0.0) + seconds, 4)

    def merge(self, later: RunSummary) -> RunSummary:
        """Return one summary of two parts of the same run, this one and a later one; counts are added up.

        The unresolved batches are those of the later part; batches that were sent at most once and have no receipt are
        those of both parts.

        :param later: summary of the later part
        """
        checkpoint = {
            name: {"before": self.checkpoint.get(name, positions)["before"], "after": positions["after"]}
            for name, positions in {**self.checkpoint, **later.checkpoint}.items()
        }
        steps = Counter(self.steps) + Counter(later.steps)
        unconfirmed = self.batches_by_state.get(BatchState.SENT.value, 0)
        records = self.records + later.records
        leaves = routes(
            dead_lettered=records.dead_lettered,
            waiting=int(Route.RETRY in later.route),
            held=int(Route.HOLD in later.route),
        )
        return RunSummary(
            pipeline=self.pipeline,
            epoch=later.epoch,
            generation=later.generation,
            run=later.run or self.run,
            route=[leaf.value for leaf in leaves],
            batches=self.batches + later.batches,
            batches_by_state=dict(Counter(later.batches_by_state) + Counter({BatchState.SENT.value: unconfirmed})),
            records=records,
            retried=self.retried + later.retried,
            checkpoint=checkpoint,
            lag=later.lag,
            spark_started=self.spark_started or later.spark_started,
            seconds=round(self.seconds + later.seconds, 3),
            steps={name: round(value, 4) for name, value in steps.items()},
            errors=dict(Counter(self.errors) + Counter(later.errors)),
            expired=[*self.expired, *later.expired],
            notices=list(dict.fromkeys([*self.notices, *later.notices])),
            target_rows=later.target_rows if later.target_rows is not None else self.target_rows,
            halted=later.halted or self.halted,
        )

    def line(self) -> str:
        """Return the summary as one line for the log."""
        records = self.records
        return (
            f"{self.pipeline}, epoch {self.epoch}: {self.batches:,} batches; {records.read:,} records read, "
            f"{records.delivered:,} delivered, {records.filtered:,} filtered, {records.dead_lettered:,} dead-lettered "
            f"in {self.seconds:.1f} s ({records.read / max(self.seconds, 1e-9):,.0f} records/s); "
            f"{self.retried:,} retries; lag {lag_text(self.lag)}; {', '.join(self.route) or 'under way'}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "pipeline": self.pipeline,
            "epoch": self.epoch,
            "generation": self.generation,
            "run": self.run,
            "route": self.route,
            "batches": self.batches,
            "batches_by_state": self.batches_by_state,
            "records": {**self.records.to_json(), "retried": self.retried},
            "checkpoint": self.checkpoint,
            "lag": self.lag,
            "spark_started": self.spark_started,
            "seconds": round(self.seconds, 3),
            "seconds_by_step": self.steps,
            "errors": self.errors,
            "expired": self.expired,
            "notices": self.notices,
            "target_rows": self.target_rows,
            "halted": self.halted.to_json() if self.halted else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSummary:
        """Return the summary from a dict that :meth:`to_json` returned."""
        values = dict(data)
        records = dict(values.pop("records"))
        halted = values.pop("halted")
        return cls(
            retried=records.pop("retried"),
            records=Counts(**records),
            steps=values.pop("seconds_by_step"),
            halted=ErrorInfo.from_json(halted) if halted else None,
            **values,
        )
