"""Figures that the soak test takes for a growth, and the runs that it disturbs."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.soak import Plan, directories, figures, first_and_last, grown, threads

_SAMPLE = {
    "java_mib": 700,
    "python_mib": 300,
    "descriptors": 400,
    "threads": 150,
    "processes": 6,
    "directories": 90,
}


def test_a_figure_that_rises_from_the_first_to_the_last_fifth_has_grown() -> None:
    leaking = [{**_SAMPLE, "descriptors": 400 + number} for number in range(200)]

    assert first_and_last(leaking)["descriptors"] == [419.5, 579.5]
    assert grown(leaking) == ["descriptors grew from 419.5 to 579.5"]
    assert grown([_SAMPLE] * 200) == []


def test_memory_counts_once_java_is_warm() -> None:
    leaking = [{**_SAMPLE, "java_mib": 300 + 5 * number} for number in range(200)]

    assert len(grown(leaking)) == 1
    assert grown(leaking[:199]) == []


def test_a_driver_of_few_runs_is_not_judged() -> None:
    assert grown([_SAMPLE, {**_SAMPLE, "threads": 900}]) == []


def test_each_number_of_runs_has_a_cancellation_and_a_kill_at_its_end() -> None:
    for runs in (20, 2000):
        plan = Plan.draw(runs, seed=1)
        assert plan == Plan.draw(runs, seed=1)
        assert plan.cancelled
        assert plan.kills
        assert min(plan.kills) >= runs * 9 // 10 > max(plan.cancelled)


def test_a_process_that_has_ended_counts_for_nothing() -> None:
    assert figures([2**22 + 1])["processes"] == 0


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
