"""``python -m airflow_provider_ckpt`` runs the commands of ``airflow ckpt`` for an Airflow that lacks them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_the_module_has_the_commands_of_the_group(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("name: orders\nsource: {type: files, path: /in}\nsinc: {}\n")
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "airflow_provider_ckpt", "validate", str(file)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )

    assert done.returncode == 1
    assert "sinc: unknown key; did you mean sink?" in done.stdout + done.stderr
