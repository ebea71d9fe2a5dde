"""A disk that is full, under the target and under the ledger: a real one, a small file system in a mount namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.services.command import CkptCommand, write_pipeline
from tests.system.machine import Machine, events, failed

ON_A_FULL_DISK = """
set -eu
mount -t tmpfs -o size=64m tmpfs disk
if [ "$1" = ledger ]; then "$2" -m airflow ckpt db migrate > migrate.log 2>&1; room=0; else room=1; fi
shift
head -c $((64 - room))M /dev/zero > disk/filler 2> /dev/null || true
"$@" > first.json 2> first.log && echo 0 > first.status || echo $? > first.status
rm disk/filler
"$@" > second.json 2> second.log && echo 0 > second.status || echo $? > second.status
"""


def on_a_full_disk(
    what: str, command: CkptCommand, place: Path, document: Mapping[str, Any]
) -> list[subprocess.CompletedProcess[str]]:
    """Run twice with ``place/disk`` a small file system of its own, which is full the first time.

    :param what: ``ledger`` makes the ledger there first and leaves no room at all, ``target`` leaves 1 MB
    """
    (place / "disk").mkdir(parents=True)
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    pipeline = write_pipeline(place / "pipeline.yaml", document)
    arguments = [sys.executable, "-m", "airflow", "ckpt", "run", str(pipeline), "-o", "json"]
    subprocess.run(
        [*namespace, "sh", "-c", ON_A_FULL_DISK, "sh", what, *arguments],
        env={**command.env, "AIRFLOW__CKPT__WARM_SPARK": "False"},  # it would outlive the namespace's processes
        cwd=place,
        stdin=subprocess.DEVNULL,
        timeout=400,
        check=True,
    )
    return [
        subprocess.CompletedProcess(
            arguments, int(status), *((place / f"{time}.{kind}").read_text() for kind in ("json", "log"))
        )
        for time in ("first", "second")
        for status in [(place / f"{time}.status").read_text()]
    ]


def test_a_full_disk_under_the_target_costs_nothing_once_there_is_room(machine: Machine) -> None:
    place = machine.here / "full"
    (place / "in").mkdir(parents=True)
    with (place / "in" / "a.jsonl").open("w") as file:
        for number in range(20_000):
            file.write(json.dumps({"id": number, "note": os.urandom(100).hex()}) + "\n")
    document = events("full", place / "in", place / "disk" / "table")
    first, second = on_a_full_disk("target", machine.command, place, document)
    assert "No space left on device" in failed(first)
    summary = machine.succeeded(second)
    assert summary["records"] == {"read": 20_000, "delivered": 20_000, "filtered": 0, "dead_lettered": 0, "retried": 0}
    assert summary["target_rows"] == 20_000


def test_a_full_disk_under_the_ledger_is_told_and_nothing_was_begun(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"id": 1, "note": "x"}\n')
    extra = {"path": str(tmp_path / "disk" / "ledger.db")}
    command = CkptCommand(tmp_path / "home", {"ckpt_default": json.dumps({"conn_type": "ckpt", "extra": extra})})
    first, second = on_a_full_disk("ledger", command, tmp_path, events("e", tmp_path / "in", tmp_path / "table"))
    line = failed(first)
    assert f"the ledger in SQLite file {extra['path']}" in line
    assert "Make room" in line
    summary = machine.succeeded(second)
    assert (summary["records"]["delivered"], summary["target_rows"]) == (1, 1)
