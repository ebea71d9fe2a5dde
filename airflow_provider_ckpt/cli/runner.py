"""The frame of every command: one result on standard output, logs on standard error, one line for an error.

A process boundary: whatever goes wrong becomes an exit status here.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

import structlog

from airflow_provider_ckpt.cli.output import printable, write_json, write_yaml
from airflow_provider_ckpt.core.errors import CkptError

_PACKAGE = "airflow_provider_ckpt"
Table = Callable[[Any, TextIO], None]
"""Writes a result for a person."""


class Stopped(BaseException):
    """A signal asked the process to end; a ``BaseException``, so that nothing on the way takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class FailedError(Exception):
    """The command worked, and its result is not what a script should go on with: exit status 1.

    :param result: what to write on standard output all the same
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class _ToStderr(logging.Handler):
    """Writes to what standard error is at that moment: while a progress bar is shown, it has itself put there."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        sys.stderr.write(self.format(record) + "\n")


def command(table: Table) -> Callable[[Callable[[Namespace], Any]], Callable[[Namespace], None]]:
    """Make a function that returns a JSON-ready result into a command.

    :param table: writes the result unless ``-o json`` or ``-o yaml`` asks for a document
    """

    def frame(function: Callable[[Namespace], Any]) -> Callable[[Namespace], None]:
        @functools.wraps(function)
        def run(args: Namespace) -> None:
            with _standard_output() as out, _signals():
                _log_to_stderr(verbose=args.verbose)
                write = {"json": write_json, "yaml": write_yaml}.get(args.output, table)
                try:
                    _write(function(args), write, out)
                except FailedError as failed:
                    _write(failed.result, write, out)
                    _exit(str(failed), args)
                except CkptError as error:
                    _exit(str(error), args)
                except Stopped as stopped:
                    _exit(f"stopped by {stopped}; the next run carries on", args, 128 + stopped.number)
                except Exception as error:  # noqa: BLE001  # the process boundary: it becomes a line and an exit status
                    again = "" if args.verbose else " (with -v: where)"
                    _exit(f"{type(error).__name__}: {error}{again}", args)

        return run

    return frame


def _write(result: Any, write: Table, out: TextIO) -> None:
    """Write the result; whoever reads it may have seen enough before its end, and close the pipe, as ``head`` does."""
    try:
        write(result, out)
        out.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as nowhere:  # takes what is still buffered when the stream is closed
            os.dup2(nowhere.fileno(), out.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _exit(message: str, args: Namespace, status: int = 1) -> NoReturn:
    if args.verbose:
        traceback.print_exc(file=sys.stderr)
    lines = [" ".join(printable(line).split()) for line in message.splitlines()]
    print("error: " + "; ".join(line for line in lines if line), file=sys.stderr)  # noqa: T201  # this is what a command does
    sys.exit(status)


@contextmanager
def _standard_output() -> Iterator[TextIO]:
    """Keep standard output for the result: until the end, this process and its children write to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as out, redirect_stdout(sys.stderr):
            yield out
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def _signals() -> Iterator[None]:
    """SIGINT and SIGTERM unwind the stack, so that Spark is stopped and the lease let go; a second one ends at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_to_stderr(*, verbose: bool) -> None:
    """Our own progress in plain lines; of everything else warnings, or with -v all."""
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    ours = logging.getLogger(_PACKAGE)
    ours.handlers[:] = [handler]
    ours.propagate = False
    ours.setLevel(logging.DEBUG if verbose else logging.INFO)
    if not verbose:
        for name in (None, "airflow", "alembic", "py4j"):
            logging.getLogger(name).setLevel(logging.WARNING)
        # Airflow's hooks log past the standard library; Spark's own output is among it.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
