"""Journal of a process of the storm: one line before and one line after each command to the ledger.

Each line is written by one system call, so a SIGKILL leaves at most the newest line incomplete; the process did nothing
on the basis of an incomplete line. Times are of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from airflow_provider_ckpt.core.errors import (
    ConfigError,
    LeaseBusyError,
    LedgerStateError,
    LedgerUnavailableError,
    SourceError,
    StaleEpochError,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Is(StrEnum):
    """The end of a command, as far as the process that gave it knows."""

    OK = "ok"
    STALE = "stale"
    REFUSED = "refused"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    BROKEN = "broken"
    UNANSWERED = "unanswered"


class Expect(StrEnum):
    """The expectation of the process that gives a command.

    ``VALID``: it fits the state, so only a newer epoch can refuse it. ``WRONG``: it does not, so it must be refused.
    ``STALE``: its lease is certainly over, or never was its own, so it must be refused as stale.
    """

    VALID = "valid"
    WRONG = "wrong"
    STALE = "stale"
    ANY = "any"


COUNTED = frozenset({Is.OK, Is.STALE, Is.REFUSED})
"""Ends of a command that the ledger has decided on; a busy lease is asked for again and counts for nothing."""

LOOK = "look"
"""Not a command: a read of the partitions, which the oracle takes for an observation."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T_co]):
    """The answer of the ledger to a command, as the process that sent it got it."""

    end: Is
    value: T_co | None = None

    @property
    def over(self) -> bool:
        """Return whether the lease is of no use any more."""
        return self.end in (Is.STALE, Is.BROKEN)


@dataclass(slots=True)
class Entry:
    """One command, read back.

    :param tried: seconds of the monotonic clock, before the command
    :param told: the same, after; None where the process did not live to hear the end
    :param facts: what was asked
    :param result: what the ledger answered
    """

    process: str
    number: int
    tried: float
    do: str
    pipeline: str
    epoch: int | None
    owner: str | None
    expect: Expect
    facts: Mapping[str, Any]
    told: float | None = None
    end: Is = Is.UNANSWERED
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tag(self) -> str:
        """Name of the command, which is also the reason or the run that the command stores in the ledger."""
        return f"{self.process}:{self.number}"

    @property
    def done(self) -> bool:
        """Return whether the ledger acknowledged it."""
        return self.end is Is.OK

    @property
    def unknown(self) -> bool:
        """Return whether it is unknown if the command had an effect."""
        return self.end in (Is.UNANSWERED, Is.UNAVAILABLE)

    def __str__(self) -> str:
        return f"{self.do} {self.tag} of {self.pipeline}, epoch {self.epoch}"


class Journal:
    """The journal of one process, written as it goes.

    :param count: is called for every command that the ledger has decided on
    """

    def __init__(self, path: Path, process: str, count: Callable[[], None] = lambda: None) -> None:
        self.process = process
        self._count = count
        self._number = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    def next_tag(self) -> str:
        """The tag that the next command gets."""
        return f"{self.process}:{self._number + 1}"

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def call(
        self,
        do: str,
        action: Callable[[], T],
        result: Callable[[T], Mapping[str, Any]],
        *,
        pipeline: str,
        epoch: int | None = None,
        owner: str | None = None,
        expect: Expect = Expect.VALID,
        **facts: Any,
    ) -> Answer[T]:
        """Write down a command, carry it out, and write down its end.

        :param result: the JSON-ready part of the answer that the oracle needs
        :param facts: JSON-ready, what is asked
        """
        self._number += 1
        asked = {"do": do, "on": pipeline, "epoch": epoch, "owner": owner, "expect": expect, "facts": facts}
        self._write(asked)
        value: T | None = None
        detail: Mapping[str, Any] = {}
        try:
            value = action()
            end, detail = Is.OK, result(value)
        except StaleEpochError:
            end = Is.STALE
        except LeaseBusyError:
            end = Is.BUSY
        except LedgerUnavailableError as error:
            end, detail = Is.UNAVAILABLE, {"sqlstate": error.sqlstate, "message": str(error)}
        except (LedgerStateError, ConfigError, SourceError) as error:
            end, detail = Is.REFUSED, {"message": str(error)}
        except Exception as error:  # noqa: BLE001 - the process's boundary: the oracle reports it
            end, detail = Is.BROKEN, {"message": repr(error)}
        self._write({"is": end, "result": detail})
        if end in COUNTED and do != LOOK:
            self._count()
        return Answer(end, value)

    def _write(self, line: Mapping[str, Any]) -> None:
        data = {"n": self._number, "t": time.monotonic(), **line}
        os.write(self._file, (json.dumps(data, separators=(",", ":")) + "\n").encode())


def read(path: Path) -> list[Entry]:
    """Every command of one process, in order."""
    entries: list[Entry] = []
    for line in path.read_bytes().split(b"\n")[:-1]:
        data = json.loads(line)
        if "do" in data:
            head = (data["do"], data["on"], data["epoch"], data["owner"], Expect(data["expect"]), data["facts"])
            entries.append(Entry(path.stem, data["n"], data["t"], *head))
        else:
            entry = entries[-1]
            entry.told, entry.end, entry.result = data["t"], Is(data["is"]), data["result"]
    return entries


def read_all(folder: Path) -> list[Entry]:
    """Every command of all processes whose journals a folder holds, in the order in which they were tried."""
    found: Iterable[Path] = sorted(folder.glob("*.journal"))
    return sorted((entry for path in found for entry in read(path)), key=lambda entry: (entry.tried, entry.number))
