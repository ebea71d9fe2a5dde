"""Shows on standard error that a long command is alive: a bar on a terminal, else a line at its beginning and end."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

_WORTH_A_LINE = 2.0
"""A command that took fewer seconds needs no word about its end."""


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Show what goes on while the block runs.

    :param total: how many steps there are; None where nobody knows
    :returns: to be called with each step's name when it is done
    """
    shown = _bar(title, total) if sys.stderr.isatty() else _lines(title, total)
    with shown as step:
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
