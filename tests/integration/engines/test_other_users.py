"""The warm engine does not use directories and sockets that another user of the machine has created at its paths."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers
from tests.services.other_user import OTHER_USER, give, offered

_KEY = "0123456789abcdef"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder that all users share; there is no folder of the user's session."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o1777)
    return tmp_path


def theirs(path: Path) -> None:
    path.mkdir(mode=0o700)
    give(path)


def theirs_for_all(path: Path) -> None:
    theirs(path)
    path.chmod(0o777)


def link_to_theirs(path: Path) -> None:
    theirs(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))
    give(path)


def link_to_ours(path: Path) -> None:
    path.with_name("private").mkdir(mode=0o700)
    path.symlink_to(path.with_name("private"))
    give(path)


def file_of_theirs(path: Path) -> None:
    path.touch(mode=0o600)
    give(path)


@pytest.mark.parametrize(
    ("put", "reason"),
    [
        (theirs, f"it belongs to the user with id {OTHER_USER} and has mode 0700"),
        (theirs_for_all, f"it belongs to the user with id {OTHER_USER} and has mode 0777"),
        (link_to_theirs, "Not a directory"),
        (link_to_ours, "Not a directory"),
        (file_of_theirs, "File exists"),
    ],
)
def test_a_runtime_directory_that_another_user_put_there_is_not_used(
    shared: Path, put: Callable[[Path], None], reason: str
) -> None:
    path = shared / f"ckpt-spark-{os.geteuid()}"
    put(path)

    with pytest.raises(EngineError) as found:
        StandingDrivers(create=True)

    assert str(path) in found.value.message
    assert reason in found.value.message
    assert "delete it, or set XDG_RUNTIME_DIR" in found.value.message


def test_a_socket_of_another_user_is_no_driver_even_in_this_user_s_directory(shared: Path) -> None:
    with StandingDrivers(create=True) as drivers:
        home = shared / f"ckpt-spark-{os.geteuid()}" / f"{_KEY}-1"
        home.mkdir(mode=0o700)
        with offered(home / "socket") as requests:
            assert drivers.connect(_KEY) is None
            assert drivers._driver(home.name).ask({"stop": "now"}) is None

    assert requests == ["", ""]  # it accepted both connections, and was sent nothing
