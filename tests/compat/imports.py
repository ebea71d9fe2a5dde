"""``python -m tests.compat.imports``: print the names that the package imports and that the installed versions lack.

Most imports are inside functions, so a missing name would otherwise show only when the function is called.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "airflow_provider_ckpt"
_OWN = frozenset({PACKAGE.name, *sys.stdlib_module_names})
_NOT_LOOKED_AT = frozenset({"airflow_versions.py", "lineage.py"})
"""Modules that are not checked: one asks for the version before it imports, one needs an extra not installed here."""


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import from another package that Python executes and nothing catches."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Try) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] not in _OWN:
            yield from ((node.module, alias.name) for alias in node.names)
        yield from imported(node)


def exists(module: str, name: str) -> bool:
    """Return whether a module has a name, be it a submodule or a variable that is set later."""
    try:
        found = import_module(module)
        if hasattr(found, name) or name in getattr(found, "__annotations__", {}):
            return True
        import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def main() -> int:
    """Print each name that does not exist; 1 if there is one."""
    files = [file for file in PACKAGE.rglob("*.py") if file.name not in _NOT_LOOKED_AT]
    names = {found for file in files for found in imported(ast.parse(file.read_text("utf-8")))}
    with redirect_stdout(sys.stderr):  # what is imported may log
        missing = [f"{module}.{name}" for module, name in sorted(names) if not exists(module, name)]
    print("\n".join(missing))
    return int(bool(missing) or not names)


if __name__ == "__main__":
    sys.exit(main())
