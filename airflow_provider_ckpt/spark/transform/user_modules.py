"""Import users' modules again for each run, in Python processes that serve several runs.

These processes are Python workers and standing drivers. Without a new import, a later run would use the functions as
they were in an earlier run, or another pipeline's functions of the same name.
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
"""Packages that are never imported again, wherever their files are: on executors they may be in zip files."""

_lock = threading.Lock()
_run: object = None
"""Identity of the run for which users' modules were imported last; None before the first one."""

_first: frozenset[str] = frozenset()
"""Names of the modules that were imported before any user's module: those of Python, PySpark and this package."""


@contextmanager
def imported_for(run: object) -> Iterator[None]:
    """Make imports in the ``with`` block load the current code of users' modules.

    A module is imported again at most once for each run. Only one thread at a time can be in such a block; others wait.

    :param run: identity of the run; any value that differs from run to run
    """
    global _run, _first  # like sys.modules, these are states of the process
    with _lock:
        if _run is None:
            _first = frozenset(sys.modules)
        elif run != _run:
            _forget()
        _run = run
        importlib.invalidate_caches()
        yield


def _forget() -> None:
    """Remove users' modules from ``sys.modules``, so that the next import loads them again.

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
    """Return the directories of Python's standard library and of installed packages, each with a slash at its end."""
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for entry in sys.path:
        folder = Path(entry)
        if entry.endswith(("site-packages", "dist-packages")) or next(folder.glob("*.dist-info"), None) is not None:
            found.add(str(folder))
    return tuple(f"{path}/" for path in found)


def _is_installed(module: ModuleType, directories: tuple[str, ...]) -> bool:
    """Return whether all files of a module are in the given directories; True for a module without files.

    :param module: an imported module
    :param directories: paths of directories, each with a slash at its end
    """
    paths = [path] if (path := getattr(module, "__file__", None)) else list(getattr(module, "__path__", []))
    return not paths or all(str(path).startswith(directories) for path in paths)
