"""The demo's data: damage is exact and repeatable, and plain Python finds every damaged line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.system import flights

FLIGHT = {
    "year": 2013,
    "month": 1,
    "day": 1,
    "dep_time": 517,
    "sched_dep_time": 515,
    "dep_delay": 2.0,
    "arr_time": 830,
    "sched_arr_time": 819,
    "arr_delay": 11.0,
    "carrier": "UA",
    "flight": 1545,
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "air_time": 227.0,
    "distance": 1400,
    "hour": 5,
    "minute": 15,
    "time_hour": "2013-01-01T10:00:00Z",
}
CANCELLED = {**FLIGHT, "dep_time": None, "dep_delay": None, "tailnum": None}


def write(path: Path, *records: object) -> Path:
    """Write records as compact JSON lines."""
    path.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
    return path


def test_plain_python_tells_every_fate(tmp_path: Path) -> None:
    late = {**FLIGHT, "carrier": "AA", "distance": 100}
    expected = flights.expect([write(tmp_path / "a", FLIGHT, CANCELLED, late), write(tmp_path / "b", [1], {}, FLIGHT)])
    assert expected.records == {"read": 6, "delivered": 3, "filtered": 1, "dead_lettered": 2}
    assert (expected.miles, dict(expected.carriers)) == (2900, {"UA": 2, "AA": 1})
    assert dict(expected.bad_lines) == {b"[1]": 1, b"{}": 1}


def test_damage_hits_exactly_as_many_lines_and_each_is_found(tmp_path: Path) -> None:
    files = [write(tmp_path / name, *[FLIGHT, CANCELLED] * 50) for name in ("a", "b")]
    assert flights.damage(files, 10) == {"cut": 3, "not UTF-8": 3, "wrong type": 2, "missing field": 2}
    expected = flights.expect(files)
    assert (expected.read, expected.dead_lettered) == (200, 10)
    assert expected.delivered + expected.filtered == 190


def test_damage_is_the_same_each_time(tmp_path: Path) -> None:
    files = [write(tmp_path / name, *[FLIGHT] * 100) for name in ("a", "b")]
    for file in files:
        flights.damage([file], 7)
    assert files[0].read_bytes() == files[1].read_bytes()
