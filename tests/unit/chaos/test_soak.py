"""Figures that the soak test considers as growth, and the runs into which it injects faults."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.chaos.warm_runs.growth import directories, figures, first_and_last, grown, rise, second_half, slope, threads
from tests.chaos.warm_runs.pipelines import KINDS
from tests.chaos.warm_runs.strikes import Plan, Strike, drivers, strike_daemon, strike_driver, strike_lane

_SAMPLE = {
    "java_mib": 700,
    "python_mib": 300,
    "descriptors": 400,
    "threads": 150,
    "processes": 6,
    "directories": 90,
}


def samples(runs: int, **growth: float) -> list[dict[str, int]]:
    """Samples of a driver after every fourth run, whose figures scatter and grow by so much a run."""
    chance = random.Random(1)
    return [
        {
            "run": run,
            **{
                name: round(value * chance.uniform(0.99, 1.01) + growth.get(name, 0) * run)
                for name, value in _SAMPLE.items()
            },
        }
        for run in range(0, runs + 4, 4)
    ]


@pytest.mark.parametrize("name", ["descriptors", "threads", "java_mib", "python_mib"])
def test_a_figure_that_rises_over_the_second_half_has_grown(name: str) -> None:
    (found,) = grown(samples(800, **{name: 0.4}))

    assert found.startswith(f"{name} ")


def test_figures_that_scatter_have_not_grown_nor_have_those_that_rise_at_first() -> None:
    warm = [{**sample, "java_mib": sample["java_mib"] + min(sample["run"], 300)} for sample in samples(800)]

    assert grown(samples(800)) == []
    assert grown(warm) == []


def test_a_driver_of_few_runs_is_not_judged() -> None:
    assert second_half(samples(396)) == []
    assert grown(samples(396, descriptors=5)) == []
    assert second_half(samples(400))[0]["run"] == 200


def test_a_rare_figure_is_judged_by_the_line_through_its_samples() -> None:
    heaps = [
        {**sample, **({"live_heap_mib": 60 + sample["run"] // 20} if sample["run"] % 40 == 0 else {})}
        for sample in samples(800)
    ]

    assert [found.partition(" ")[0] for found in grown(heaps)] == ["live_heap_mib"]


def test_a_line_ignores_single_samples_far_from_it() -> None:
    points = [(float(number), 10 + 0.5 * number) for number in range(40)]
    points[7] = (7.0, 900.0)

    assert slope(points) == pytest.approx(0.5, abs=0.01)
    assert rise(points) == {"median": 20.2, "per_1000_runs": 500.0, "rise": 19.5, "noise": 0.0}
    assert slope([(1.0, 5.0)]) == 0.0


def test_the_first_and_the_last_fifth_are_compared() -> None:
    assert first_and_last([{**_SAMPLE, "descriptors": 400 + number} for number in range(200)])["descriptors"] == [
        419.5,
        579.5,
    ]


@pytest.mark.parametrize("runs", [20, 2000])
def test_each_number_of_runs_has_each_kind_of_strike_over_all_its_length(runs: int) -> None:
    plan = Plan.draw(runs, seed=1)

    assert plan == Plan.draw(runs, seed=1)
    assert all(plan.planned(strike) for strike in Strike)
    assert all(0 <= number < runs for number in plan.strikes)
    killed = [number for number, strike in plan.strikes.items() if strike is Strike.DRIVER]
    assert not [number for number in killed if runs * 0.4 <= number < runs * 0.85]
    if runs == 2000:
        assert (plan.planned(Strike.DRIVER), plan.planned(Strike.RUN)) == (8, 100)
        assert min(plan.strikes) < 100
        assert max(plan.strikes) > 1900


def test_nothing_is_hit_where_no_driver_accepts_runs(tmp_path: Path) -> None:
    (tmp_path / "key-1").mkdir()
    (tmp_path / "key-1" / "owner").write_text("cli:host:1:1")
    chance = random.Random(1)

    assert [strike(tmp_path, chance) for strike in (strike_lane, strike_daemon, strike_driver)] == [False] * 3


def test_a_driver_counts_once_the_run_that_started_it_has_surely_found_it(tmp_path: Path) -> None:
    driver = tmp_path / "key-1"
    driver.mkdir()
    (driver / "owner").write_text(f"cli:host:{os.getpid()}:1")
    (driver / "socket").touch()
    at_once = drivers(tmp_path)
    two_seconds_ago = time.time() - 2
    os.utime(driver / "socket", (two_seconds_ago, two_seconds_ago))

    assert (at_once, drivers(tmp_path)) == ([], [os.getpid()])


def test_there_are_ten_pipelines() -> None:
    assert len(KINDS) == 10


def test_a_process_that_has_ended_counts_for_nothing(tmp_path: Path) -> None:
    assert figures([2**22 + 1], tmp_path)["processes"] == 0


def test_directories_of_spark_s_blocks_are_not_counted_and_others_are(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / "driver" / "blockmgr-1" / f"{number:02x}").mkdir(parents=True)
    before = directories(tmp_path)
    (tmp_path / "driver" / "left").mkdir()

    assert (before, directories(tmp_path)) == (2, 3)


def test_threads_of_spark_s_block_manager_are_not_counted_and_others_are(tmp_path: Path) -> None:
    for number, name in enumerate(["java", "block-manager-a", "block-manager-s", "WorkerMonitor"]):
        (tmp_path / "task" / str(number)).mkdir(parents=True)
        (tmp_path / "task" / str(number) / "comm").write_text(f"{name}\n")
    (tmp_path / "task" / "9").mkdir()

    assert threads(tmp_path) == 2
