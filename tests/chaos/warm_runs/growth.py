"""Measure a standing driver, and decide whether its memory and other figures grow from run to run."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SLACK: Mapping[str, int] = {"descriptors": 20, "threads": 15, "processes": 4, "directories": 20}
"""Growth of a number that means nothing; a tenth of the number comes on top."""

MEMORY = ("java_mib", "python_mib", "live_heap_mib")
"""Figures in MiB: resident memory of Java, memory of the Python processes, and what Java cannot free."""

_LEAST_RUNS = 400
"""Number of runs that a driver has to serve to be judged, by the second half of them: it warms up during the first."""

_LEAST_HEAPS = 5
"""Number of samples that a line needs."""

_NOISE = 3.0
"""Standard deviations by which samples scatter around their line, up to which a rise of the line means nothing."""

_SHARE = 0.02
"""Part of the memory up to which a rise means nothing, where samples hardly scatter."""

_ATTACH_SECONDS = 10.0


def figures(pids: Sequence[int], folder: Path) -> dict[str, int]:
    """Return memory and numbers of the processes of a driver, and of the directories of all drivers and runs.

    :param pids: processes of the driver
    :param folder: folder below which the directories are counted
    """
    found = dict.fromkeys(("java_mib", "python_mib", *SLACK), 0)
    kib = {"java_mib": 0, "python_mib": 0}
    for pid in pids:
        process = Path(f"/proc/{pid}")
        with suppress(OSError):  # a Python worker that has ended
            name = (process / "comm").read_text().strip()
            kib["java_mib" if name == "java" else "python_mib"] += _memory(process, shared=name != "java")
            found["threads"] += threads(process)
            found["descriptors"] += len(list((process / "fd").iterdir()))
            found["processes"] += 1
    found["directories"] = directories(folder)
    return {**found, **{name: value >> 10 for name, value in kib.items()}}


def live_heap(pid: int) -> int:
    """Return the size in MiB of the objects on the heap of a Java process after a full collection.

    It asks the process itself, as ``jcmd`` does, which a JRE lacks.

    :raises OSError: if the process has ended, or does not answer
    """
    address = Path(f"/tmp/.java_pid{pid}")
    if not address.exists():
        request = Path(f"/proc/{pid}/cwd/.attach_pid{pid}").parent.resolve() / f".attach_pid{pid}"
        request.touch()
        try:
            os.kill(pid, signal.SIGQUIT)
            deadline = time.monotonic() + _ATTACH_SECONDS
            while not address.exists():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"Java process {pid} does not answer")
                time.sleep(0.01)
        finally:
            request.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ATTACH_SECONDS)
        connection.connect(str(address))
        connection.sendall(b"1\0jcmd\0GC.class_histogram\0\0\0")
        with connection.makefile("rb") as answer:
            total = [line for line in answer if line.startswith(b"Total")]
    if not total:
        raise OSError(f"Java process {pid} reports no heap")
    return int(total[-1].split()[2]) >> 20


def threads(process: Path) -> int:
    """Return the number of threads of a process, without Spark's two pools of its block manager: at most 100 each,
    which it creates as it needs them.

    :param process: the process's folder below ``/proc``
    """
    found = 0
    for task in (process / "task").iterdir():
        with suppress(OSError):  # the thread has ended
            found += not (task / "comm").read_text(errors="replace").startswith("block-manager-")
    return found


def directories(folder: Path) -> int:
    """Return the number of directories below a folder, without those in which Spark spreads its blocks: at most 64,
    which it creates as it needs them.
    """
    spread = "blockmgr-"
    return sum(len(found) for path, found, _ in os.walk(folder) if not Path(path).name.startswith(spread))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of a line through points: the median of those of all pairs (Theil and Sen)."""
    rises = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for at, earlier in enumerate(points)
        for later in points[at + 1 :]
        if later[0] != earlier[0]
    ]
    return statistics.median(rises) if rises else 0.0


def rise(points: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return how a figure changes from run to run: ``per_1000_runs`` and ``rise`` of the line through the samples, and
    the ``noise``, their standard deviation around it.

    :param points: number of the run, and the figure after it
    """
    steepness = slope(points)
    span = points[-1][0] - points[0][0]
    rest = [value - steepness * number for number, value in points]
    middle = statistics.median(rest)
    noise = 1.4826 * statistics.median(abs(value - middle) for value in rest)
    median = statistics.median(value for _, value in points)
    told = {"median": median, "per_1000_runs": steepness * 1000, "rise": steepness * span, "noise": noise}
    return {name: round(value, 1) for name, value in told.items()}


def first_and_last(samples: Sequence[Mapping[str, int]]) -> dict[str, list[float]]:
    """Return the medians of the first and the last fifth of some samples, by figure."""
    fifth = max(1, len(samples) // 5)
    return {
        name: [statistics.median(sample[name] for sample in part) for part in (samples[:fifth], samples[-fifth:])]
        for name in SLACK
    }


def second_half(samples: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """Return the samples after the second half of a driver's runs; empty for a driver that has served too few runs.

    :param samples: figures of a driver, each with the number of the ``run``
    """
    if not samples or samples[-1]["run"] - samples[0]["run"] < _LEAST_RUNS:
        return []
    middle = (samples[0]["run"] + samples[-1]["run"]) / 2
    return [sample for sample in samples if sample["run"] >= middle]


def memory(samples: Sequence[Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """Return the :func:`rise` of each figure of memory, where there are enough samples."""
    by_name = {name: [(sample["run"], sample[name]) for sample in samples if name in sample] for name in MEMORY}
    return {name: rise(points) for name, points in by_name.items() if len(points) >= _LEAST_HEAPS}


def grown(samples: Sequence[Mapping[str, int]]) -> list[str]:
    """Return a phrase for each figure of a driver that has grown over the second half of its runs."""
    half = second_half(samples)
    numbers = [
        f"{name} grew from {first:g} to {last:g} over the second half"
        for name, (first, last) in (first_and_last(half) if half else {}).items()
        if last > first * 1.1 + SLACK[name]
    ]
    return numbers + [
        f"{name} rose by {found['rise']:g} over the second half, with a noise of {found['noise']:g}"
        for name, found in memory(half).items()
        if found["rise"] > max(_NOISE * found["noise"], _SHARE * found["median"])
    ]


def _memory(process: Path, *, shared: bool) -> int:
    """Return the memory of a process in KiB.

    :param process: the process's folder below ``/proc``
    :param shared: whether to divide a page that several processes share among them, which takes longer to find
    """
    told: dict[str, Any] = {}
    for line in (process / ("smaps_rollup" if shared else "status")).read_text().splitlines():
        name, _, value = line.partition(":")
        told[name] = value.split()
    return int(told["Pss" if shared else "VmRSS"][0])
