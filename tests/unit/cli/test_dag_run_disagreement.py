"""Tests of the warning that the ledger and Airflow disagree on the outcome of a DAG run."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_ckpt.cli.dag_run_disagreement import contradiction
from airflow_provider_ckpt.core.task_lease_owner import dag_run_of, of_task, task_of
from airflow_provider_ckpt.replication.process_lease_owner import of_this_process


def status(*, held: bool = False, lease: str | None = None, **batches: int) -> dict[str, Any]:
    return {
        "batches": batches,
        "held": [{"batch": "t#1"}] if held else [],
        "lease": {"held": lease is not None, "owner": lease},
    }


@pytest.mark.parametrize("state", ["running", "queued", None])
def test_of_a_run_that_is_not_over_or_gone_nothing_is_said(state: str | None) -> None:
    assert contradiction(state, status(planned=1)) is None
    assert contradiction(state, status()) is None
    assert contradiction(state, status(lease="dag:a/b/orders/t"), ["t"]) is None


def test_a_task_that_airflow_shows_as_running_while_nobody_holds_the_lease_is_told() -> None:
    said = contradiction("running", status(in_flight=1), ["replicate.submit"])

    assert said is not None
    assert "Airflow shows replicate.submit as running, but no run holds the lease" in said


def test_an_owner_names_its_task_or_group() -> None:
    assert task_of(of_task("care", "one", "orders", "replicate[2]")) == ("replicate", 2)
    assert task_of(of_task("care", "one", "orders", "shop.replicate")) == ("shop.replicate", -1)
    assert task_of(of_this_process()) is None


def test_a_success_with_batches_that_have_no_verdict_is_told() -> None:
    said = contradiction("success", status(planned=2, in_flight=1))

    assert said is not None
    assert "2 planned, 1 in_flight" in said


def test_a_failure_that_left_nothing_to_do_is_told() -> None:
    said = contradiction("failed", status(delivered=3))

    assert said is not None
    assert "all planned batches have a verdict" in said


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ("success", status(delivered=3)),
        ("success", status(held=True)),
        ("failed", status(planned=1)),
        ("failed", status(held=True)),
    ],
)
def test_where_both_say_the_same_nothing_is_said(state: str, seen: dict[str, Any]) -> None:
    assert contradiction(state, seen) is None


def test_only_a_dag_runs_lease_names_one() -> None:
    assert dag_run_of(of_task("care", "manual__2026-01-01T00:00:00+00:00", "orders", "replicate[2]")) == (
        "care",
        "manual__2026-01-01T00:00:00+00:00",
    )
    assert dag_run_of(of_this_process()) is None
    assert dag_run_of(None) is None
