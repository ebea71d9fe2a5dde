"""Show the progress of a long command on standard error: a bar on a terminal, else log lines."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

_WORTH_A_LINE = 2.0
"""Seconds after which a command without a progress bar logs its duration at its end."""


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Show the progress of a ``with`` block on standard error: a bar on a terminal, else log lines.

    :param title: text with which the bar or each log line begins
    :param total: number of steps; None if unknown
    :return: context manager that yields a function, to be called with each step's name when the step is done
    """
    progress_display = _bar(title, total) if sys.stderr.isatty() else _lines(title, total)
    with progress_display as step:
        yield step


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    counted = [MofNCompleteColumn()] if total is not None else []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), *counted, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=total)

        def step(name: str) -> None:
            shown.update(task, advance=1, description=f"{title}: {name}")

        yield step


@contextmanager
def _lines(title: str, total: int | None) -> Iterator[Callable[[str], None]]:
    started = time.monotonic()
    done = 0

    def step(name: str) -> None:
        nonlocal done
        done += 1
        log.info("%s: %s (%d of %s)", title, name, done, total if total is not None else "?")

    yield step
    seconds = time.monotonic() - started
    if seconds > _WORTH_A_LINE:
        log.info("%s took %.1f seconds", title, seconds)
