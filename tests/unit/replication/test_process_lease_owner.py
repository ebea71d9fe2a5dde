"""The owner of a lease: when its process is known to have ended."""

from __future__ import annotations

import subprocess
import sys

from airflow_provider_ckpt.core.task_lease_owner import of_task
from airflow_provider_ckpt.replication import process_lease_owner as owner


def test_a_living_process_is_not_dead() -> None:
    assert not owner.is_dead(owner.of_this_process())


def test_an_ended_process_of_this_machine_is_dead() -> None:
    code = f"from {owner.__name__} import of_this_process; print(of_this_process())"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert owner.is_dead(printed.strip())


def test_a_reused_pid_does_not_pass_for_its_former_process() -> None:
    kind, host, pid, started = owner.of_this_process().split(":")
    assert owner.is_dead(f"{kind}:{host}:{pid}:{int(started) - 1}")


def test_a_process_of_another_machine_may_live() -> None:
    assert not owner.is_dead("cli:another-host:999999:1")


def test_a_dag_run_may_live() -> None:
    assert not owner.is_dead(of_task("flights", "manual__2026-01-01", "flights", "replicate"))
