"""Run pipelines one after the other on a standing driver, in a process that may be killed during a run.

The process reads one JSON line for each run from standard input, and writes the result of the run to standard output.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller
from tests.chaos.crash_points.run_spec import RunSpec

_ROOT = Path(__file__).parents[3]


class RunProcess:
    """One such process. It dies with the thread that started it.

    :param environment: its environment variables
    :param log: file to which it appends its log
    """

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                killed_with_caller([sys.executable, "-m", __name__]),
                cwd=_ROOT,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )

    def run(self, run_spec: RunSpec, cancel_after: float | None = None) -> dict[str, Any] | None:
        """Make a run, and return what became of it; None if the process was killed.

        :param run_spec: the run
        :param cancel_after: seconds after which to cancel it as ``on_kill`` does
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = json.dumps({"run": run_spec.to_json(), "cancel_after": cancel_after})
        try:
            self._process.stdin.write(order.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                told: dict[str, Any] = json.loads(line)
                return told
        return None

    def kill(self) -> None:
        """Send it SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        """End it, and reap it."""
        self._process.kill()
        self._process.communicate()


def _run(order: Mapping[str, Any]) -> dict[str, Any]:
    from airflow_provider_ckpt.config.load import build
    from airflow_provider_ckpt.core.errors import CkptError
    from airflow_provider_ckpt.engines.factory import make_engine
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
    from airflow_provider_ckpt.replication.run.replicate import replicate

    run_spec = RunSpec.from_json(order["run"])
    engine: Any = make_engine(build(run_spec.document))
    told: dict[str, Any] = {"error": None, "stranger": None, "lost_waves": 0}
    timer = threading.Timer(order["cancel_after"] or 0, engine.kill)
    if order["cancel_after"] is not None:
        timer.start()
    try:
        with Ledger.open(run_spec.ledger) as ledger:
            summary = replicate(run_spec.setup(ledger, of_this_process()), engine)
        told |= {"route": summary.route, "lost_waves": summary.errors.get("Processing", 0)}
    except CkptError as error:
        told["error"] = str(error)
    except Exception:  # noqa: BLE001  # the process's boundary: the judge must hear of it
        told["stranger"] = traceback.format_exc()
    timer.cancel()
    return {**told, "cold": not engine._is_standing}


def main() -> None:
    """Make runs until standard input ends."""
    import airflow_provider_ckpt.engines.launcher  # imports Airflow, which sets logging up as it likes

    del airflow_provider_ckpt
    text = f"%(asctime)s {os.getpid()} %(message)s"
    logging.basicConfig(level=logging.INFO, format=text, stream=sys.stderr, force=True)
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
