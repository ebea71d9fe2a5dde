"""Runs side by side: their number, and the effects of a failure and of a signal on the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.replication.run.parallel_runs import Limits, ParallelRuns, RunStoppedError, SharedTurn


class Signal(BaseException):
    """Exception that a signal handler raises in the main thread."""


def test_each_run_has_its_result_and_a_failure_stops_no_other() -> None:
    def fail(turn: SharedTurn) -> int:
        raise SourceError("no such table")

    def end(turn: SharedTurn) -> int:
        raise SystemExit(3)

    found = ParallelRuns({"a": lambda _: 1, "b": fail, "c": end, "d": lambda _: 4}, Limits(1, 1, 100)).run()

    assert (found["a"], found["d"]) == (1, 4)
    assert isinstance(found["b"], SourceError)
    assert isinstance(found["c"], RuntimeError)
    assert "SystemExit(3)" in str(found["c"])


@pytest.mark.parametrize("at_once", [1, 3, 50])
def test_no_more_than_the_given_number_run_at_once(at_once: int) -> None:
    lock, now, most = threading.Lock(), [0], [0]
    together = threading.Barrier(min(at_once, 12))

    def work(turn: SharedTurn) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        together.wait(30)
        with lock:
            now[0] -= 1

    found = ParallelRuns({str(number): work for number in range(12)}, Limits(at_once, at_once, 100)).run()

    assert len(found) == 12
    assert most[0] == min(at_once, 12)


def test_they_begin_in_the_given_order() -> None:
    begun: list[str] = []

    def beginning(name: str) -> Callable[[SharedTurn], None]:
        return lambda _: begun.append(name)

    ParallelRuns({name: beginning(name) for name in "zyxabc"}, Limits(1, 1, 100)).run()

    assert begun == list("zyxabc")


def test_a_run_for_which_there_is_no_thread_has_failed_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    start, found = threading.Thread.start, dict[str, object]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "ckpt-run-b":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    runs: ParallelRuns[int] = ParallelRuns({name: lambda _: 1 for name in "abc"}, Limits(1, 1, 100))
    waiting = threading.Thread(target=lambda: found.update(runs.run()), daemon=True)
    waiting.start()
    waiting.join(10)

    assert (found["a"], str(found["b"]), found["c"]) == (1, "can't start new thread", 1)


def test_an_exception_in_the_calling_thread_stops_what_runs_and_begins_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, released = [], []

    def work(turn: SharedTurn) -> None:
        begun.append(1)
        try:
            while True:
                turn.check()
                time.sleep(0.01)
        except RunStoppedError:
            released.append(1)
            raise

    runs: ParallelRuns[None] = ParallelRuns({str(number): work for number in range(9)}, Limits(2, 2, 100))

    class Interrupted:
        def get(self) -> None:
            while len(begun) < 2:
                time.sleep(0.01)
            raise Signal

    monkeypatch.setattr(runs, "_ended", Interrupted())
    with pytest.raises(Signal):
        runs.run()

    assert (len(begun), len(released)) == (2, 2)


def test_a_run_whose_turn_ends_waits_while_another_one_works() -> None:
    seen: list[str] = []

    def work(name: str) -> Callable[[SharedTurn], None]:
        def waves(turn: SharedTurn) -> None:
            for records in (60, 60, 60):
                while not turn.take(1):
                    turn.check()
                seen.append(name)
                turn.charge(records)

        return waves

    ParallelRuns({name: work(name) for name in "ab"}, Limits(1, 2, 100)).run()

    assert "".join(seen) == "aabbab"


def test_a_signal_also_stops_runs_that_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = [], []

    def work(turn: SharedTurn) -> None:
        begun.append(1)
        turn.leave()
        try:
            while True:
                turn.check()
                turn.take(0.01)
                turn.leave()
        except RunStoppedError:
            stopped.append(1)
            raise

    runs: ParallelRuns[None] = ParallelRuns({str(number): work for number in range(9)}, Limits(1, 4, 100))

    class Interrupted:
        def get(self) -> None:
            while len(begun) < 4:
                time.sleep(0.01)
            raise Signal

    monkeypatch.setattr(runs, "_ended", Interrupted())
    with pytest.raises(Signal):
        runs.run()

    assert (len(begun), len(stopped)) == (4, 4)


def test_runs_that_never_end_pause_so_that_all_begin() -> None:
    begun, all_begun = set(), threading.Event()
    resumed: list[str] = []

    def work(name: str) -> Callable[[SharedTurn], int]:
        def waves(turn: SharedTurn) -> int:
            begun.add(name)
            if len(begun) == 9:
                all_begun.set()
            count = 0
            while not all_begun.is_set():
                turn.check()
                while not turn.take(1):
                    turn.check()
                turn.charge(100)
                count += 1
                if turn.must_pause(0, 0):
                    turn.resume()
                    assert not turn.is_paused
                    resumed.append(name)
            return count

        return waves

    limits = Limits(2, 3, 100, turns_each=2)
    found = ParallelRuns({str(number): work(str(number)) for number in range(9)}, limits).run()

    assert all(isinstance(count, int) and count <= 20 for count in found.values()), found
    assert resumed


def test_a_run_that_pauses_until_a_retry_uses_up_its_time_budget_meanwhile() -> None:
    seen: list[float] = []

    def wait(turn: SharedTurn) -> None:
        turn.leave()
        while not turn.must_pause(7.0, 0.3):
            turn.check()
        started = time.monotonic()
        turn.resume()
        seen.extend((time.monotonic() - started, turn.seconds_used))

    ParallelRuns({"a": wait, "b": lambda _: None}, Limits(1, 1, 100, turns_each=9)).run()

    assert seen[0] >= 0.3
    assert seen[1] == pytest.approx(7.3)


def test_a_signal_also_stops_paused_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = [], []

    def work(turn: SharedTurn) -> None:
        begun.append(1)
        turn.leave()
        try:
            while not turn.must_pause(0, 3600):
                turn.check()
            turn.resume()
        except RunStoppedError:
            stopped.append(1)
            raise

    runs: ParallelRuns[None] = ParallelRuns({str(number): work for number in range(5)}, Limits(1, 1, 100, turns_each=1))

    class Interrupted:
        def get(self) -> None:
            while len(begun) < 5:
                time.sleep(0.01)
            raise Signal

    monkeypatch.setattr(runs, "_ended", Interrupted())
    started = time.monotonic()
    with pytest.raises(Signal):
        runs.run()

    assert len(stopped) == 5
    assert time.monotonic() - started < 10
