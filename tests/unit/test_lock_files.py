"""Lock files hold names, versions and hashes, so that they work with any mirror of a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FOLDERS = ("tests", "airflow_provider_ckpt")
_NAMES = ("*.lock", "package-lock.json")
LOCKS = sorted(
    {
        ROOT / "requirements.lock",
        *(
            path
            for folder in _FOLDERS
            for name in _NAMES
            for path in (ROOT / folder).rglob(name)
            if "node_modules" not in path.parts
        ),
    }
)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lock_file_has_no_address(path: Path) -> None:
    assert [line for line in path.read_text("utf-8").splitlines() if "://" in line] == []
