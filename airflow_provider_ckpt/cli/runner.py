"""Execute a command: write its result to standard output, logs and errors to standard error, set the exit status."""

from __future__ import annotations

import atexit
import functools
import gc
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
TableWriter = Callable[[Any, TextIO], None]
"""Function that writes a command's result to a stream as tables."""


class Stopped(BaseException):
    """Exception that ends a command when the process receives SIGINT or SIGTERM.

    It is a ``BaseException``, so that code which handles failures does not catch it.

    :param number: number of the signal
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class FailedError(Exception):
    """Error of a command that completed with a negative result, such as a failed audit; the exit status is 1.

    :param message: error message, written to standard error
    :param result: result of the command, which is still written to standard output
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class _StderrHandler(logging.Handler):
    """Log handler that writes each line to the present ``sys.stderr``, which a progress bar may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record as one line to the current ``sys.stderr``."""
        sys.stderr.write(self.format(record) + "\n")


def command(table: TableWriter) -> Callable[[Callable[[Namespace], Any]], Callable[[Namespace], None]]:
    """Return a decorator that turns a function with a JSON-ready result into a command of ``airflow ckpt``.

    The command writes the result to standard output, logs and errors to standard error, and sets the exit status: 0, or
    1 after an error, or 128 plus the number of the signal that stopped it.

    :param table: function that writes the result as tables, unless ``-o json`` or ``-o yaml`` is given
    """

    def frame(function: Callable[[Namespace], Any]) -> Callable[[Namespace], None]:
        @functools.wraps(function)
        def run(args: Namespace) -> None:
            # At exit, Python searches all objects for garbage, which takes a quarter of a small run's CPU time.
            atexit.register(gc.freeze)
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
                    _exit(f"stopped by {stopped}; the next run continues", args, 128 + stopped.number)
                except Exception as error:  # noqa: BLE001  # process boundary: any error becomes a line and an exit status
                    trace_hint = "" if args.verbose else " (add -v for the stack trace)"
                    _exit(f"{type(error).__name__}: {error}{trace_hint}", args)

        return run

    return frame


def _write(result: Any, write: TableWriter, out: TextIO) -> None:
    """Write the result; exit without an error message if the reader closes the pipe early, as ``head`` does.

    :param result: the result
    :param write: function that writes the result in the chosen format
    :param out: standard output
    """
    try:
        write(result, out)
        out.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as nowhere:  # gets what is buffered when the stream closes
            os.dup2(nowhere.fileno(), out.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _exit(message: str, args: Namespace, status: int = 1) -> NoReturn:
    if args.verbose:
        traceback.print_exc(file=sys.stderr)
    lines = [" ".join(printable(line).split()) for line in message.splitlines()]
    print("error: " + "; ".join(line for line in lines if line), file=sys.stderr)  # noqa: T201  # commands write to the terminal
    sys.exit(status)


@contextmanager
def _standard_output() -> Iterator[TextIO]:
    """Reserve standard output for the result of a command, and yield a stream on it.

    In the ``with`` block, all other output of the process to standard output goes to standard error.
    """
    sys.stdout.flush()
    stdout_descriptor = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(stdout_descriptor), "w", encoding="utf-8") as out, redirect_stdout(sys.stderr):
            yield out
    finally:
        os.dup2(stdout_descriptor, 1)
        os.close(stdout_descriptor)


@contextmanager
def _signals() -> Iterator[None]:
    """Raise :class:`Stopped` on SIGINT and SIGTERM in the ``with`` block.

    The code in the block then stops Spark and releases the lease. A second signal ends the process at once.
    """

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
    """Send log messages to standard error: those of this package, and warnings of other packages; with ``-v`` all.

    :param verbose: whether ``-v`` is given
    """
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    package_logger = logging.getLogger(_PACKAGE)
    package_logger.handlers[:] = [handler]
    package_logger.propagate = False
    package_logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    if not verbose:
        for name in (None, "airflow", "alembic", "py4j"):
            logging.getLogger(name).setLevel(logging.WARNING)
        # Airflow's hooks log through structlog, including Spark's output.
        processors = structlog.get_config()["processors"]
        if _only_warnings not in processors:
            structlog.configure(processors=[_only_warnings, *processors])


def _only_warnings(_: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Drop an event of structlog below the level of a warning; return any other event.

    This function is a processor of structlog. A filtering logger class of structlog cannot be used instead, since such
    loggers lack methods that Airflow's code calls.

    :param method: name of the logger's method, such as ``info``
    :param event: the event
    :raises structlog.DropEvent: to drop the event
    """
    if method in {"notset", "debug", "info"}:
        raise structlog.DropEvent
    return event
