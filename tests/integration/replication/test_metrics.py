"""Metrics of whole runs: deliveries, failures and retries, and a refused run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.errors import StaleEpochError
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.replication.metric_names import Metric
from airflow_provider_ckpt.replication.observe.conditions import Condition, ConditionKind
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.attach_or_reacquire import attach_or_reacquire
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.services.replication import Replication
from tests.services.tables import execute


@dataclass
class Meter:
    """Keeps what it is told."""

    counted: Counter[Metric] = field(default_factory=Counter)
    gauges: dict[tuple[Metric, str | None], float] = field(default_factory=dict)
    seconds: dict[Metric, float] = field(default_factory=dict)

    def count(self, metric: Metric, by: int = 1) -> None:
        """Add."""
        self.counted[metric] += by

    def gauge(self, metric: Metric, value: float, partition: str | None = None) -> None:
        """Keep the newest."""
        self.gauges[metric, partition] = value

    def timing(self, metric: Metric, seconds: float) -> None:
        """Add."""
        self.seconds[metric] = self.seconds.get(metric, 0.0) + seconds

    def of(self, metric: Metric) -> float:
        """A gauge of the pipeline."""
        return self.gauges[metric, None]


def run(orders: Replication) -> tuple[RunSummary, Meter]:
    """One whole run, measured."""
    meter = Meter()
    return replicate(replace(orders.setup(), meter=meter), SessionEngine(orders.spark)), meter


def test_a_run_is_measured_as_its_summary_has_it(orders: Replication) -> None:
    execute(orders.dsn, "ALTER TABLE target ADD CHECK (id <> 500)")

    summary, meter = run(orders.changed(transform={"where": "id > 10"}))

    assert (summary.records.delivered, summary.records.filtered, summary.records.dead_lettered) == (989, 10, 1)
    for metric in (Metric.READ, Metric.DELIVERED, Metric.FILTERED, Metric.DEAD_LETTERED):
        assert meter.counted[metric] == getattr(summary.records, metric.value.partition(".")[2])
    assert (meter.counted[Metric.COMMITTED], meter.counted[Metric.COMMIT_FAILED]) == (10, 0)
    assert (meter.of(Metric.PARKED), meter.of(Metric.IN_FLIGHT), meter.of(Metric.CHECKPOINT_AGE)) == (1, 0, 0)
    assert 0 <= meter.of(Metric.OLDEST_PARKED) < 600
    assert [value for (metric, _), value in meter.gauges.items() if metric is Metric.LAG] == [0]
    assert min(meter.seconds[Metric.SPARK_SECONDS], meter.seconds[Metric.LEDGER_SECONDS]) > 0


def test_what_fails_and_is_held_is_counted_and_the_lag_is_told(orders: Replication) -> None:
    execute(
        orders.dsn,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'come back later' USING ERRCODE = '40001'; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT ON target FOR EACH ROW WHEN (NEW.id = 950) EXECUTE FUNCTION refuse()",
    )
    retry = {"max_attempts": 2, "rounds": 1, "initial_delay_ms": 0, "on_exhausted": "hold"}

    summary, meter = run(orders.changed(retry=retry, run={"fail_on_hold": False}))

    assert summary.batches_by_state == {"held": 1}
    assert meter.counted[Metric.COMMITTED] == 9
    assert meter.counted[Metric.COMMIT_FAILED] == 2
    assert meter.counted[Metric.RETRIES] == summary.retried == 1
    assert (meter.of(Metric.HELD), meter.of(Metric.PLANNED)) == (1, 0)
    assert [value for (metric, _), value in meter.gauges.items() if metric is Metric.LAG] == [100]
    assert meter.of(Metric.CHECKPOINT_AGE) > 0


def test_the_lag_of_a_pipeline_that_has_not_begun_is_not_a_number(orders: Replication) -> None:
    """A table is read from ``start``, 2**63 below zero; a distance from there counts no rows."""
    at_least = Condition(ConditionKind.LAG_AT_LEAST, 10**6)
    at_most = Condition(ConditionKind.LAG_AT_MOST, 10**6)
    observed = {"lag": {"public.orders": None}, "total": 0, "not_begun": ["public.orders"]}
    assert at_least.check(orders.ledger, "orders", orders.setup) == (True, observed)
    assert at_most.check(orders.ledger, "orders", orders.setup) == (False, observed)

    meter = Meter()
    with acquire(replace(orders.setup(), meter=meter)) as held:
        held.plan()
        summary = held.finish()

    assert summary.lag == {"public.orders": None}
    assert "; lag not begun;" in summary.line()
    assert not [value for (metric, _), value in meter.gauges.items() if metric is Metric.LAG]
    assert at_most.check(orders.ledger, "orders", orders.setup) == (False, observed)
    summary, meter = run(orders)
    assert summary.lag == {"public.orders": 0}
    assert meter.gauges[Metric.LAG, "public.orders"] == 0


def test_who_takes_over_and_who_is_refused_is_counted(orders: Replication) -> None:
    first, second = Meter(), Meter()
    terms = orders.changed(lease={"ttl": 1, "wait": 0})
    setup = replace(terms.setup("the first"), meter=first)

    def overtaken() -> None:
        with acquire(setup) as held:
            with acquire(replace(terms.setup("the second"), meter=second), force=True) as taken:
                taken.finish()
            held.confirm_lease()

    with pytest.raises(StaleEpochError):
        overtaken()
    with pytest.raises(StaleEpochError):
        attach_or_reacquire(setup, 1)

    assert (first.counted[Metric.TAKEOVERS], second.counted[Metric.TAKEOVERS]) == (0, 1)
    assert (first.counted[Metric.FENCE_REJECTIONS], second.counted[Metric.FENCE_REJECTIONS]) == (2, 0)


def test_what_expires_in_a_run_is_counted_and_told_in_its_summary(orders: Replication) -> None:
    meter = Meter()
    with acquire(replace(orders.setup(), meter=meter)) as held:
        held.plan()
        held.window = timedelta(microseconds=1)  # a cached property: later, all of it is too old
        held.settle()
        summary = held.finish()

    assert meter.counted[Metric.EXPIRED] == len(summary.expired) == 10
    assert summary.expired[-1] == {"partition": "public.orders", "range": [901, 1001]}
    assert RunSummary.from_json(summary.to_json()).merge(summary).expired == summary.expired * 2
