"""The locks of a standing driver and of a run directory, while another process tests them."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from airflow_provider_ckpt.engines.run_directory import RunDirectory
from airflow_provider_ckpt.spark.driver import standing
from airflow_provider_ckpt.spark.driver.standing_protocol import LOCK


def hold_for_a_moment(path: Path) -> None:
    """Look whether a file or directory is locked, and take a while for it."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    threading.Timer(0.3, os.close, [descriptor]).start()


def test_a_driver_starts_while_another_process_looks_at_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SparkStartError(Exception):
        """Raised where Spark would start."""

    monkeypatch.setattr(standing, "_start_spark", MagicMock(side_effect=SparkStartError))
    for name in ("die_with_parent", "prefer_installed_pyspark", "preload_in_thread"):
        monkeypatch.setattr(standing, name, lambda *_: None)
    (tmp_path / LOCK).touch()
    hold_for_a_moment(tmp_path / LOCK)

    with pytest.raises(SparkStartError):
        standing.main(str(tmp_path), "1")


def test_a_run_directory_is_locked_while_another_process_looks_at_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "ckpt-run-host-1-1-a"

    def make_directory(**_: Any) -> str:
        made.mkdir()
        hold_for_a_moment(made)
        return str(made)

    monkeypatch.setattr("tempfile.mkdtemp", make_directory)
    directory = RunDirectory()

    time.sleep(0.4)
    descriptor = os.open(made, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
        directory.remove()
