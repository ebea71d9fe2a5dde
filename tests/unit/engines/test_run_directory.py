"""Run directories of killed runs: those that may be removed, and those that may not."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_ckpt.engines.run_directory import RunDirectory, remove_abandoned

_HOST = socket.gethostname()
_RUN = """
import os, signal, sys
from airflow_provider_ckpt.engines.run_directory import RunDirectory
made = RunDirectory()
(made.path / "job.json").write_text("hush")
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def started(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def left_by(folder: Path, host: str, pid: int, start: str | int) -> Path:
    made = folder / f"ckpt-run-{host}-{pid}-{start}-abc_1234"
    made.mkdir(mode=0o700)
    (made / "job.json").write_text("hush")
    return made


def test_a_run_s_directory_is_its_owner_s_alone_and_says_whose_it_is(folder: Path) -> None:
    made = RunDirectory()
    try:
        assert made.path.parent == folder
        assert made.path.name.startswith(f"ckpt-run-{_HOST}-{os.getpid()}-{started(os.getpid())}-")
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    finally:
        made.remove()
        made.remove()
    assert list(folder.iterdir()) == []


def test_what_a_killed_run_left_is_swept_and_what_a_living_one_needs_is_not(folder: Path) -> None:
    ours = RunDirectory()
    with subprocess.Popen(
        [sys.executable, "-c", _RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        theirs = Path(run.stdout.readline().strip())
        remove_abandoned()
        assert (theirs / "job.json").exists()
        run.send_signal(signal.SIGKILL)
        run.wait()

    remove_abandoned()

    assert list(folder.iterdir()) == [ours.path]
    ours.remove()


def test_a_reused_pid_does_not_keep_a_dead_run_s_directory(folder: Path) -> None:
    left = left_by(folder, _HOST, os.getpid(), int(started(os.getpid())) - 1)

    remove_abandoned()

    assert not left.exists()


def test_what_may_belong_to_a_living_process_stays(folder: Path) -> None:
    kept = [
        left_by(folder, _HOST, os.getpid(), started(os.getpid())),
        left_by(folder, "another-host", 4_000_000, 1),
        folder / "ckpt-run-abcdefgh",
        folder / "ckpt-runs",
    ]
    for path in kept[2:]:
        path.mkdir()

    remove_abandoned()

    assert all(path.exists() for path in kept)


def test_a_locked_directory_stays_though_its_pid_means_nothing_here(folder: Path) -> None:
    left = left_by(folder, _HOST, 4_000_000, 1)
    descriptor = os.open(left, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    remove_abandoned()
    assert (left / "job.json").exists()
    os.close(descriptor)
    remove_abandoned()
    assert not left.exists()


def test_another_user_s_directory_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_by(folder, _HOST, 4_000_000, 1)
    monkeypatch.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)

    remove_abandoned()

    assert (left / "job.json").exists()


def test_a_link_is_not_followed(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (folder / f"ckpt-run-{_HOST}-4000000-1-abc_1234").symlink_to(elsewhere, target_is_directory=True)
    (left_by(folder, _HOST, 4_000_001, 1) / "link").symlink_to(elsewhere, target_is_directory=True)

    remove_abandoned()

    assert (elsewhere / "precious").exists()
    assert not (folder / f"ckpt-run-{_HOST}-4000001-1-abc_1234").exists()


def test_a_temporary_folder_that_is_gone_stops_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder / "gone"))

    remove_abandoned()

    assert not (folder / "gone").exists()


def test_two_who_remove_a_directory_at_once_do_not_disturb_each_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run's thread closes its engine while the signal handler ends it."""
    made = RunDirectory()
    remove = shutil.rmtree

    def meanwhile(path: Path, *, ignore_errors: bool) -> None:
        made.remove()
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", meanwhile)
    made.remove()

    assert list(folder.iterdir()) == []
