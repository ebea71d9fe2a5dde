"""Zip file of this package's code for Spark's executors; equal code makes equal bytes on every machine."""

from __future__ import annotations

import hashlib
import zipfile
from functools import cached_property
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_SUBPACKAGES = ("config", "connectors", "core", "spark")
"""Subpackages that may be imported on executors; the others may not (see the layers in ``pyproject.toml``)."""


class CodeZip:
    """Zip file of the modules that lanes import.

    :ivar digest: SHA-256 hash of the modules' names and contents
    """

    @cached_property
    def digest(self) -> str:
        """SHA-256 hash of the names and contents of all modules in the zip file, in hexadecimal digits."""
        digest = hashlib.sha256()
        for name, content in self._modules:
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()

    def write(self, path: Path) -> None:
        """Write the zip file to ``path``. Its bytes depend on the modules only, and not on time or machine."""
        with zipfile.ZipFile(path, "w") as file:
            for name, content in self._modules:
                file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)

    @cached_property
    def _modules(self) -> list[tuple[str, bytes]]:
        """Path in the zip file, and content, of each module."""
        paths = [_PACKAGE / "__init__.py", *(path for part in _SUBPACKAGES for path in (_PACKAGE / part).rglob("*.py"))]
        return sorted((str(path.relative_to(_PACKAGE.parent)), path.read_bytes()) for path in paths)
