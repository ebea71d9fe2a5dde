"""A run's metrics are sent by Airflow's own StatsD client to a real UDP socket."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from airflow.providers.common.compat.sdk import Stats

from airflow_provider_ckpt.airflow_versions import initialize_stats
from airflow_provider_ckpt.replication.metric_names import COUNTERS, GAUGES, TIMERS, Metric
from airflow_provider_ckpt.stats import StatsMeter, tag_value
from tests.services.statsd import Sample, StatsdServer


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdServer]:
    """A server that Airflow's ``Stats`` of this process sends to."""
    with StatsdServer() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        initialize_stats()
        yield server
        monkeypatch.undo()
        initialize_stats()


def heard(statsd: StatsdServer, number: int) -> list[Sample]:
    """The first so many samples."""
    deadline = time.monotonic() + 10
    while len(found := statsd.samples()) < number:
        assert time.monotonic() < deadline, statsd.lines
        time.sleep(0.005)
    return found


def test_every_metric_arrives_by_its_name_and_kind_with_its_tags(statsd: StatsdServer) -> None:
    meter = StatsMeter("orders")
    for metric in COUNTERS:
        meter.count(metric, 3)
    for metric in GAUGES:
        meter.gauge(metric, 4.5, "orders-0")
    for metric in TIMERS:
        meter.timing(metric, 0.25)

    found = {sample.name: sample for sample in heard(statsd, len(Metric))}

    assert set(found) == {metric.value for metric in Metric}
    assert {found[metric].kind for metric in COUNTERS} == {"c"}
    assert {(found[metric].kind, found[metric].value) for metric in GAUGES} == {("g", 4.5)}
    assert {(found[metric].kind, found[metric].value) for metric in TIMERS} == {("ms", 250.0)}
    assert all(sample.tags["pipeline"] == "orders" for sample in found.values())
    assert found[Metric.LAG].tags["partition"] == "orders-0"


def test_a_counter_begins_at_nothing_and_the_totals_are_kept(statsd: StatsdServer) -> None:
    meter = StatsMeter("orders")

    meter.count(Metric.COMMIT_FAILED, 0)
    meter.count(Metric.READ, 7)
    meter.count(Metric.READ, 5)

    assert [sample.value for sample in heard(statsd, 3)] == [0.0, 7.0, 5.0]
    assert meter.totals[Metric.READ] == 12


@pytest.mark.parametrize("partition", ["dlq:1", "a b,c=d|e#f\n", "orders-ü", "x" * 400])
def test_no_partition_is_dropped_for_its_name(statsd: StatsdServer, partition: str) -> None:
    StatsMeter("p" * 128).gauge(Metric.LAG, 1, partition)

    [sample] = heard(statsd, 1)
    assert sample.value == 1.0


def test_long_values_stay_two() -> None:
    assert tag_value("x" * 200 + "a") != tag_value("x" * 200 + "b")
    assert tag_value("orders-0") == "orders-0"


def test_a_server_that_is_gone_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with StatsdServer() as server:
        env = server.env
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    initialize_stats()

    StatsMeter("orders").count(Metric.READ)

    monkeypatch.undo()
    initialize_stats()


def test_without_statsd_nothing_is_sent(statsd: StatsdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "False")
    initialize_stats()

    StatsMeter("orders").count(Metric.READ)
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    initialize_stats()
    Stats.incr("ckpt.after", 1)

    assert [sample.name for sample in heard(statsd, 1)] == ["after"]
