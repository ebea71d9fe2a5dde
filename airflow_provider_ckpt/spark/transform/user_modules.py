"""Import users' modules anew for each run, in processes that serve many.

A Python worker, and a standing driver, outlive a run. Without this, a later run would get the functions as they were in
an earlier one, or another pipeline's functions of the same name.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

_KEPT = frozenset({"airflow_provider_ckpt", "py4j", "pyspark"})
"""Packages that stay wherever they are: on executors they may be in zip files."""

_lock = threading.Lock()
_run: object = None
"""The run for which users' modules were imported last."""

_first: frozenset[str] = frozenset()
"""Modules that were imported before any user's: those of Python, PySpark and this package."""


@contextmanager
def imported_for(run: object) -> Iterator[None]:
    """Let the block import users' modules as they are now, once a run; one block at a time.

    :param run: identifies the run
    """
    global _run, _first  # as sys.modules, this is a state of the process
    with _lock:
        if _run is None:
            _first = frozenset(sys.modules)
        elif run != _run:
            _forget()
        _run = run
        importlib.invalidate_caches()
        yield


def _forget() -> None:
    """Remove users' modules from ``sys.modules``.

    Installed packages stay, and so do packages with extension modules, which Python cannot import twice.
    """
    installed = _installed_directories()
    own = {
        name
        for name, module in list(sys.modules.items())
        if name not in _first and not _is_installed(module, installed)
    }
    compiled = {
        name.partition(".")[0]
        for name in own
        if str(getattr(sys.modules[name], "__file__", None)).endswith(tuple(EXTENSION_SUFFIXES))
    }
    for name in own:
        if name.partition(".")[0] not in compiled | _KEPT:
            sys.modules.pop(name, None)


def _installed_directories() -> tuple[str, ...]:
    """Return the directories of Python's own modules and of packages that an installer put there."""
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for entry in sys.path:
        folder = Path(entry)
        if entry.endswith(("site-packages", "dist-packages")) or next(folder.glob("*.dist-info"), None) is not None:
            found.add(str(folder))
    return tuple(f"{path}/" for path in found)


def _is_installed(module: ModuleType, directories: tuple[str, ...]) -> bool:
    paths = [path] if (path := getattr(module, "__file__", None)) else list(getattr(module, "__path__", []))
    return not paths or all(str(path).startswith(directories) for path in paths)
