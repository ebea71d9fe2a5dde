"""A full disk under the target and under the ledger: a real, small file system in a mount namespace."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services.command import CkptCommand
from tests.services.warm_airflow import airflow_in
from tests.services.warm_spark import WarmSpark
from tests.system.machine import Machine, events

MEGABYTES = 64
MOUNTED = f'mount -t tmpfs -o size={MEGABYTES}m tmpfs "$0" && exec "$@"'


@dataclass(frozen=True)
class SmallDisk:
    """A machine whose commands see a small file system.

    :param path: where they see it
    :param outside: the path by which this process sees it
    """

    machine: Machine
    path: Path
    outside: Path

    def fill(self, room: int = 0) -> None:
        """Write a file until there is no more room than this, in MB."""
        with (self.outside / "filler").open("wb", buffering=0) as file:
            left = (MEGABYTES - room) << 20
            try:
                while left > 0:
                    left -= file.write(bytes(min(left, 1 << 16)))
            except OSError:  # what else is there takes room, too
                assert room == 0

    def clear(self) -> None:
        """Delete that file."""
        (self.outside / "filler").unlink()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    """A machine whose commands see a file system at ``disk`` that no other process sees."""
    here = tmp_path_factory.mktemp("small")
    (here / "disk").mkdir()
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    command = CkptCommand(here / "home", {}, airflow=[str(here / "airflow")])
    within = [*namespace, "sh", "-c", MOUNTED, str(here / "disk")]
    with WarmSpark(here / "runtime") as spark, airflow_in(here, command.env, within) as server:
        command.env |= spark.environment
        command.migrate()
        outside = Path(f"/proc/{server}/root") / here.relative_to("/") / "disk"
        yield SmallDisk(Machine(here, {}, command), here / "disk", outside)


def test_a_full_disk_under_the_target_costs_nothing_once_there_is_room(small: SmallDisk) -> None:
    machine = small.machine
    (machine.here / "full").mkdir()
    with (machine.here / "full" / "a.jsonl").open("w") as file:
        for number in range(20_000):
            file.write(json.dumps({"id": number, "note": os.urandom(100).hex()}) + "\n")
    document = events("full", machine.here / "full", small.path / "table") | {"retry": {"initial_delay_ms": 1}}
    small.fill(room=1)
    assert "No space left on device" in machine.refused(document)
    small.clear()
    summary = machine.run(document)
    assert summary["records"] == {"read": 20_000, "delivered": 20_000, "filtered": 0, "dead_lettered": 0, "retried": 0}
    assert summary["target_rows"] == 20_000


def test_a_full_disk_under_the_ledger_is_told_and_nothing_was_begun(
    small: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, ledger = small.machine, small.path / "ledger.db"
    (machine.here / "in").mkdir()
    (machine.here / "in" / "a.jsonl").write_text('{"id": 1, "note": "x"}\n')
    connection = json.dumps({"conn_type": "ckpt", "extra": {"path": str(ledger)}})
    monkeypatch.setitem(machine.command.env, "AIRFLOW_CONN_CKPT_DEFAULT", connection)
    machine.command.migrate()
    document = events("e", machine.here / "in", machine.here / "table")
    small.fill()
    line = machine.refused(document)
    assert f"the ledger in SQLite file {ledger}" in line
    assert "Make room" in line
    small.clear()
    summary = machine.run(document)
    assert (summary["records"]["delivered"], summary["target_rows"]) == (1, 1)
