"""Memory limits above which a standing driver is replaced, and the processes that are measured."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_ckpt.spark.driver import memory
from airflow_provider_ckpt.spark.driver.memory import Memory

_MAX_HEAP = 1 << 30


def spark(pool: str, live: int) -> Any:
    """A session whose Java has one memory pool with some live objects."""
    found = SimpleNamespace(
        getCollectionUsage=lambda: SimpleNamespace(getUsed=lambda: live),
        getType=lambda: SimpleNamespace(name=lambda: "HEAP"),
        getName=lambda: pool,
    )
    management = SimpleNamespace(ManagementFactory=SimpleNamespace(getMemoryPoolMXBeans=lambda: [found]))
    runtime = SimpleNamespace(getRuntime=lambda: SimpleNamespace(maxMemory=lambda: _MAX_HEAP))
    java = SimpleNamespace(lang=SimpleNamespace(management=management))
    return SimpleNamespace(_jvm=SimpleNamespace(Runtime=runtime, java=java))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Resident memory of the driver's processes, by pid."""
    found = {os.getpid(): 100 << 20, os.getppid(): 500 << 20}
    monkeypatch.setattr(memory, "_processes", lambda: iter(found))
    monkeypatch.setattr(memory, "_resident", lambda pid: found[pid])
    return found


@pytest.mark.parametrize("collector", ["G1 Old Gen", "PS Old Gen", "Tenured Gen", "ZGC Old Generation"])
def test_a_driver_whose_java_keeps_most_of_its_heap_is_replaced(sizes: dict[int, int], collector: str) -> None:
    held = Memory(spark(collector, live=_MAX_HEAP * 4 // 5))
    held.measure()
    free = Memory(spark(collector, live=_MAX_HEAP // 2))
    free.measure()

    assert (held.has_grown, free.has_grown) == (True, False)


def test_a_driver_is_replaced_when_a_worker_or_java_has_grown(sizes: dict[int, int]) -> None:
    worker, java = 1, os.getppid()

    def grows(pid: int, size: int) -> bool:
        before = dict(sizes)
        sizes[pid] = size
        measured = Memory(spark("G1 Old Gen", live=0))
        measured.measure()
        sizes.clear()
        sizes.update(before)
        return measured.has_grown

    assert not grows(worker, 1 << 30)
    assert grows(worker, (1 << 30) + 1)
    assert not grows(java, _MAX_HEAP + (1 << 30))
    assert grows(java, _MAX_HEAP + (1 << 30) + 1)


def test_the_driver_s_processes_are_those_of_its_session() -> None:
    with subprocess.Popen(["sleep", "60"]) as ours, subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        try:
            found = set(memory._processes())
        finally:
            ours.kill()
            other.kill()

    assert {os.getpid(), ours.pid} <= found
    assert other.pid not in found
    assert memory._resident(other.pid) == memory._proportional(other.pid) == 0
