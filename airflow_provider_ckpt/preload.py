"""Airflow plugin that imports the modules of a run in a scheduler whose LocalExecutor forks the tasks.

A task then has these modules already when it starts, which saves more than a tenth of a second. Modules with native
libraries that start threads, such as NumPy and PyArrow, are left out, because a process must not have threads when it
forks.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Any

from airflow.configuration import conf
from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

log = logging.getLogger(__name__)

_MODULES = (
    "assets.pipeline",
    "config.load",
    "config.warnings",
    "engines.factory",
    "engines.warm",
    "ledger.ledger",
    "operators.replicate",
    "replication.process_lease_owner",
    "replication.run.replicate",
    "stats",
)
"""Modules of this package that a task of :class:`CkptReplicateOperator` imports."""


@hookimpl
def on_starting(component: Any) -> None:
    """Import the modules of a run, if a scheduler with LocalExecutor starts.

    Among them are the modules that connectors name in ``preload_before_fork``.

    An error is only logged, since it occurs again in the task that needs the module.

    :param component: the part of Airflow that starts. A scheduler passes a ``Job`` whose type is not set yet, so the
        scheduler is recognised by the command line
    """
    is_scheduler = type(component).__name__ == "Job" and sys.argv[1:2] == ["scheduler"]
    if not is_scheduler or "LocalExecutor" not in conf.get("core", "executor"):
        return
    from airflow_provider_ckpt.config.installed_connectors import installed_connectors

    of_connectors = [name for _, connector in installed_connectors() for name in connector.preload_before_fork]
    for name in [*(f"{__package__}.{name}" for name in _MODULES), *of_connectors]:
        try:
            import_module(name)
        except Exception:
            log.exception("%s cannot be imported", name)


class CkptPreloadPlugin(AirflowPlugin):
    """Plugin with the listener :func:`on_starting`."""

    name = "ckpt_preload"
    listeners: list[Any] = [sys.modules[__name__]]  # noqa: RUF012  # as in AirflowPlugin
