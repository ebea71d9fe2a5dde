"""The frame of every command: its output on each stream, and its exit status."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, TextIO

import pytest
import structlog

from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.errors import SinkError
from tests.services.restored_logging import restored_logging


@pytest.fixture(autouse=True)
def logging_afterwards() -> Iterator[None]:
    """Commands set up the logging of this process."""
    with restored_logging():
        yield


JSON = Namespace(output="json", verbose=False)
TABLE = Namespace(output="table", verbose=False)


def table(result: Any, out: TextIO) -> None:
    out.write(f"table of {result}\n")


def raising(error: BaseException) -> Any:
    @command(table)
    def run(args: Namespace) -> None:
        raise error

    return run


def test_json_is_all_there_is_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    @command(table)
    def run(args: Namespace) -> dict[str, Any]:
        print("chatter")
        subprocess.run([sys.executable, "-c", "print('chatter of a child')"], check=True)
        logging.getLogger("airflow_provider_ckpt.replication").info("10 batches")
        return {"records": {"read": 3}, "seconds": 1.5}

    run(JSON)

    out, err = capfd.readouterr()
    assert json.loads(out) == {"records": {"read": 3}, "seconds": 1.5}
    assert "chatter" in err
    assert "chatter of a child" in err
    assert "10 batches" in err


def test_of_what_structlog_logs_only_warnings_are_shown_by_the_loggers_that_airflow_set_up(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class OfAirflow(structlog.make_filtering_bound_logger(logging.NOTSET)):  # type: ignore[misc]
        def getEffectiveLevel(self) -> int:  # noqa: N802
            return logging.NOTSET

    structlog.configure(wrapper_class=OfAirflow, logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))

    @command(table)
    def run(args: Namespace) -> int:
        log: Any = structlog.get_logger()
        log.info("chatter")
        log.warning("something to look at")
        return int(log.getEffectiveLevel())

    run(TABLE)
    run(TABLE)

    out, err = capfd.readouterr()
    assert out == "table of 0\n" * 2
    assert "chatter" not in err
    assert err.count("something to look at") == 2


def test_yaml_is_a_document_too(capfd: pytest.CaptureFixture[str]) -> None:
    command(table)(lambda args: {"read": 3})(Namespace(output="yaml", verbose=False))

    assert capfd.readouterr().out == "read: 3\n"


def test_a_person_gets_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    command(table)(lambda args: 7)(TABLE)

    assert capfd.readouterr().out == "table of 7\n"


def test_an_error_is_one_line_and_exit_status_1(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        raising(SinkError("the server  is gone.\nReally.", pipeline="orders", hint="Start it."))(JSON)

    out, err = capfd.readouterr()
    assert ended.value.code == 1
    assert out == ""
    assert err == "error: [Sink] pipeline orders: the server is gone.; Really. Start it.\n"


def test_what_nobody_foresaw_is_one_line_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        raising(OSError(28, "No space left on device"))(TABLE)

    assert ended.value.code == 1
    assert capfd.readouterr().err == "error: OSError: [Errno 28] No space left on device (add -v for the stack trace)\n"


def test_verbose_also_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        raising(ValueError("odd"))(Namespace(output="table", verbose=True))

    err = capfd.readouterr().err
    assert "Traceback" in err
    assert err.endswith("error: ValueError: odd\n")


def test_a_result_that_is_not_good_enough_is_printed_and_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        raising(FailedError("2 batches are held", {"held": 2}))(JSON)

    out, err = capfd.readouterr()
    assert ended.value.code == 1
    assert json.loads(out) == {"held": 2}
    assert err == "error: 2 batches are held\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_unwinds_the_stack(number: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    stopped: list[str] = []

    @command(table)
    def run(args: Namespace) -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            stopped.append("Spark")

    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        run(TABLE)

    assert ended.value.code == 128 + number
    assert stopped == ["Spark"]
    assert capfd.readouterr().err == f"error: stopped by {number.name}; the next run continues\n"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("output", ["json", "yaml", "table"])
def test_a_pipe_that_is_closed_early_ends_it_quietly(output: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = (
        "from argparse import Namespace\n"
        "from airflow_provider_ckpt.cli.runner import command\n"
        "from airflow_provider_ckpt.cli.output import write_document\n"
        f"args = Namespace(output={output!r}, verbose=False)\n"
        "command(write_document)(lambda args: {'letters': ['x' * 99] * 9999})(args)\n"
    )

    ended = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)

    assert ended.stderr == b""
    assert ended.returncode == 128 + signal.SIGPIPE


def test_the_end_of_its_process_collects_no_garbage() -> None:
    code = (
        "import atexit, gc\n"
        "from argparse import Namespace\n"
        "from airflow_provider_ckpt.cli.runner import command\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "write = lambda result, out: print(result, file=out)\n"
        "command(write)(lambda args: gc.get_freeze_count())(Namespace(output='table', verbose=False))\n"
    )

    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)

    assert ended.stdout == "0\nTrue\n"  # garbage of a long run is still collected
