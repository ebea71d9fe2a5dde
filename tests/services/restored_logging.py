"""Restore the logging configuration of the tests' process after commands of ``airflow ckpt`` have changed it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def restored_logging() -> Iterator[None]:
    """Undo what a command changes in the logging of its process, so that later tests still see what is logged."""
    structured = structlog.get_config()
    loggers = [logging.getLogger(name) for name in ("airflow_provider_ckpt", None, "airflow", "alembic", "py4j")]
    before = [(each.handlers[:], each.propagate, each.level) for each in loggers]
    try:
        yield
    finally:
        structlog.configure(**structured)
        for each, (handlers, propagate, level) in zip(loggers, before, strict=True):
            each.handlers[:], each.propagate = handlers, propagate
            each.setLevel(level)
