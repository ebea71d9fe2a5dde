"""Create the archive of the classes that Spark's JVM loads, by running a small pipeline.

The JVM writes the archive when this pipeline has ended. Runs start this program in the background; it does its work
only while no run is in progress. To create an archive by hand, for a container image for example, run ``python -m
airflow_provider_ckpt.engines.class_archive_training``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.engines.class_archive import CLASS_PATH
from airflow_provider_ckpt.engines.head_start import spark_class_archive
from airflow_provider_ckpt.engines.run_directory import other_run_in_progress
from airflow_provider_ckpt.engines.spark_environment import environment
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.setup import PipelineContext

_WRITE_SECONDS = 600.0
"""Seconds that the JVM may take to write the archive, on a busy machine."""
_NICE = 10
"""Niceness of this process: on a busy machine, it gets about a tenth of the CPU time that another process gets.

With less CPU time, the creation would not finish on a busy machine.
"""
_RECORDS = 100
_LOOK_SECONDS = 0.2
"""Seconds between two checks of whether other processes' runs are in progress."""

_PATIENCE_SECONDS = 3600.0
"""Seconds to wait for a moment without runs of other processes before the creation of the archive is given up."""


def create_archive(class_path: str = "") -> Path | None:
    """Create the class archive for the runs of this environment, unless it exists or another process is creating it.

    :param class_path: Spark property ``spark.driver.extraClassPath`` of the runs that will use the archive
    :return: path of the archive's file; None if no archive is possible, or if another process is creating it
    :raises CkptError: if Spark does not start
    :raises RuntimeError: if Java wrote no archive
    :raises TimeoutError: if runs of other processes were in progress for an hour without a break
    """
    found = spark_class_archive({**os.environ, **environment()}, class_path)
    if found is None:
        return None
    with found.creation_lock() as alone, tempfile.TemporaryDirectory(prefix="ckpt-training-") as home:
        if not alone or (existing := found.find()) is not None:
            return existing if alone else None
        try:
            with _yielding_to_other_runs():
                _train(Path(home), found.unfinished_path, class_path)
            return found.publish()
        finally:
            found.unfinished_path.unlink(missing_ok=True)


@contextmanager
def _yielding_to_other_runs() -> Iterator[None]:
    """Wait until no other run is in progress; inside the ``with`` block, pause this process's Spark during other runs.

    :raises TimeoutError: if other runs are in progress for an hour
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while other_run_in_progress():
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the archive was not created, because runs were in progress for all of {_PATIENCE_SECONDS:g} s"
            )
        time.sleep(_LOOK_SECONDS)
    done = threading.Event()
    giving = threading.Thread(target=_pause_during_other_runs, args=(done,), name="ckpt-give-way", daemon=True)
    giving.start()
    try:
        yield
    finally:
        done.set()
        giving.join()


def _pause_during_other_runs(done: threading.Event) -> None:
    """Stop all child processes of this process (SIGSTOP) while another run is in progress; continue them afterwards.

    :param done: event that ends this function; paused processes are continued first
    """
    stopped = False
    while not done.wait(_LOOK_SECONDS) or stopped:
        wanted = other_run_in_progress() and not done.is_set()
        if wanted or stopped:
            for pid in _descendants(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP if wanted else signal.SIGCONT)
        stopped = wanted


def _descendants(pid: int) -> Iterator[int]:
    """Yield the pids of all processes that a process has started, directly or indirectly.

    :param pid: pid of the process
    """
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from _descendants(child)


def _train(home: Path, archive: Path, class_path: str) -> None:
    """Run a small pipeline that makes the JVM load the classes which pipelines usually need.

    :param home: directory for the files of the run
    :param archive: path of the file to which the JVM writes the archive
    :param class_path: Spark property ``spark.driver.extraClassPath`` of the runs that will use the archive
    :raises RuntimeError: if the pipeline failed, or Java wrote no archive
    """
    os.environ["AIRFLOW__CKPT__SPARK_HEAD_START"] = "False"
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:cds=error {os.environ.get("SPARK_SUBMIT_OPTS", "")}'
    )
    (home / "in").mkdir()
    (home / "in" / "records.jsonl").write_text("".join(f"{json.dumps(_record(n))}\n" for n in range(_RECORDS)))
    pipeline = build(
        {
            "name": "training",
            "source": {"type": "files", "path": str(home / "in")},
            "transform": {
                "decode": "json",
                "schema": "id bigint, name string, price decimal(12,2), at timestamp",
                "where": "id % 10 <> 0 and name is not null",
                "select": {
                    "id": "id",
                    "name": "upper(name)",
                    "cents": "cast(price * 100 as bigint)",
                    "on": "to_date(at)",
                },
            },
            "sink": {"type": "files", "format": "jsonl", "path": str(home / "out")},
            "run": {"conf": {"spark.master": "local[2]", **({CLASS_PATH: class_path} if class_path else {})}},
        }
    )
    url = f"sqlite:///{home}/ckpt.db"
    migrate.upgrade(url, create=True)
    # Not in the temporary folder: two trainings, of different class paths, would pause for each other, for ever.
    engine = SubmitEngine(pipeline, stop_seconds=_WRITE_SECONDS, parent=home)
    with Ledger.open(url) as ledger:
        replicate(PipelineContext(pipeline, ledger, _no_connection, f"training:{os.getpid()}"), engine)
    if engine.error is not None or not archive.exists():
        raise RuntimeError("Java did not write the archive of its classes") from engine.error


def _record(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"name {number}", "price": number / 100, "at": "2026-01-01T12:00:00Z"}


def _no_connection(name: str) -> Any:
    raise KeyError(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the archive at low CPU priority, and print the path of its file.

    :param arguments: arguments of the command line; by default those of this process
    :return: exit status 0
    """
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_ckpt.engines.class_archive_training", description=__doc__
    )
    parser.add_argument(
        "--class-path", default="", help="spark.driver.extraClassPath of the runs that will use the archive"
    )
    options = parser.parse_args(arguments)
    os.nice(_NICE)
    created = create_archive(options.class_path)
    print(created or "no archive: this Java or its class path does not support one, or another process is creating it")  # noqa: T201  # the result
    return 0


if __name__ == "__main__":
    sys.exit(main())
