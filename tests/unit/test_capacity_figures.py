"""The capacity page shows the measured figures, or says that there are none."""

from __future__ import annotations

import json
from pathlib import Path

from tests import capacity_figures

_PAGE = "|files|\n\n|pipelines|\n\n|ledger|\n"
_SUMMARY = {"p50": 1.04, "p99": 20.0, "max": 30.0}


def record(folder: Path) -> None:
    executor = {
        "seconds": 41.2,
        "task_seconds": _SUMMARY,
        "waiting_seconds": _SUMMARY,
        "executor_mib": 401.1,
        "driver_mib": 1100.4,
    }
    ledger = {"at_once": 50, "commands": 9000, "commands_per_second": 150.2, "command_ms": _SUMMARY}
    figures = {
        "load": 9.16,
        "files": {
            "files": 300,
            "parse_seconds": 2.34,
            "serialize_seconds": 1.2,
            "parse_mib": 30.0,
            "task_seconds": 0.05,
            "task_seconds_with_one_file": 0.02,
        },
        "pipelines": {
            "at_once": 50,
            "rows": 1000,
            "pool_slots": 4,
            "LocalExecutor": executor,
            "CeleryExecutor": executor,
        },
        "ledger": {
            "postgres": {
                **ledger,
                "lock_waits": 12,
                "lock_wait_ms": _SUMMARY,
                "deadlocks": 0,
                "waits_between_pipelines": 0,
            },
            "sqlite": ledger,
        },
    }
    document = {"commit": "0123456789ab", "day": "2026-11-25", "figures": figures}
    (folder / "bench-many.json").write_text(json.dumps(document))


def test_without_a_record_each_part_says_that_it_was_never_measured(tmp_path: Path) -> None:
    assert capacity_figures.insert(_PAGE, tmp_path).count("never run whole") == 3


def test_a_record_is_shown_with_its_commit(tmp_path: Path) -> None:
    record(tmp_path)

    shown = capacity_figures.insert(_PAGE, tmp_path)

    assert shown.count("At 0123456789ab, 2026-11-25; load average of the machine before: 9.2.") == 3
    assert "parses it in 2.3 s" in shown
    assert "   * - all runs together\n     - 41 s\n     - 41 s" in shown
    assert "   * - memory of the driver, at most\n     - 1100 MiB\n     - 1100 MiB" in shown
    assert "12 beside 9,000 commands, 1 ms at the median, 20 ms" in shown
    assert "deadlocks: 0; waits for another pipeline's lock: 0" in shown
