"""An arrow points only down: the layers of the architecture hold, by import-linter's contracts in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_layers_hold() -> None:
    root = Path(__file__).parents[2]

    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=root, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout
