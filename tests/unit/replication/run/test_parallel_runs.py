"""Runs side by side: how many at once, what a failure does to the others, and what a signal does to all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.replication.run.engine_protocol import Check
from airflow_provider_ckpt.replication.run.parallel_runs import ParallelRuns, RunStoppedError


class Signal(BaseException):
    """Exception that a signal handler raises in the main thread."""


def test_each_run_has_its_result_and_a_failure_stops_no_other() -> None:
    def fail(check: Check) -> int:
        raise SourceError("no such table")

    def end(check: Check) -> int:
        raise SystemExit(3)

    found = ParallelRuns({"a": lambda _: 1, "b": fail, "c": end, "d": lambda _: 4}, at_once=1).run()

    assert (found["a"], found["d"]) == (1, 4)
    assert isinstance(found["b"], SourceError)
    assert isinstance(found["c"], RuntimeError)
    assert "SystemExit(3)" in str(found["c"])


@pytest.mark.parametrize("at_once", [1, 3, 50])
def test_no_more_than_the_given_number_run_at_once(at_once: int) -> None:
    lock, now, most = threading.Lock(), [0], [0]
    together = threading.Barrier(min(at_once, 12))

    def work(check: Check) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        together.wait(30)
        with lock:
            now[0] -= 1

    found = ParallelRuns({str(number): work for number in range(12)}, at_once).run()

    assert len(found) == 12
    assert most[0] == min(at_once, 12)


def test_they_begin_in_the_given_order() -> None:
    begun: list[str] = []

    def beginning(name: str) -> Callable[[Check], None]:
        return lambda _: begun.append(name)

    ParallelRuns({name: beginning(name) for name in "zyxabc"}, at_once=1).run()

    assert begun == list("zyxabc")


def test_an_exception_in_the_calling_thread_stops_what_runs_and_begins_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, released = [], []

    def work(check: Check) -> None:
        begun.append(1)
        try:
            while True:
                check()
                time.sleep(0.01)
        except RunStoppedError:
            released.append(1)
            raise

    runs: ParallelRuns[None] = ParallelRuns({str(number): work for number in range(9)}, at_once=2)

    class Interrupted:
        def get(self) -> None:
            while len(begun) < 2:
                time.sleep(0.01)
            raise Signal

    monkeypatch.setattr(runs, "_ended", Interrupted())
    with pytest.raises(Signal):
        runs.run()

    assert (len(begun), len(released)) == (2, 2)
