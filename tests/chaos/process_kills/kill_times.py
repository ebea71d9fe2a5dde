"""Plan of a crash test: the moments, and the process to kill at each.

The first twenty moments are chosen by hand, five for each kind of process, over the whole duration of a run. Further
moments are random.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The process that gets SIGKILL."""

    DRIVER = "driver"
    WORKER = "worker"
    TASK = "task"
    ALL = "all"


class When(StrEnum):
    """The event to wait for."""

    SECONDS = "seconds after the command began"
    SPARK = "seconds after the JVM appeared"
    WORKER = "seconds after a Python worker appeared"
    BATCHES = "batches committed in the sink"
    RECEIPTED = "seconds after the last receipt, before the ledger settles"
    SETTLED = "seconds after the checkpoint reached the end"
    TAKEOVER = "seconds after a re-run was granted its epoch, where it fences and reconciles"


@dataclass(frozen=True, slots=True)
class KillTime:
    """One crash.

    :param number: from 1
    :param amount: seconds or batches, as ``when`` says
    :param waves: several short waves instead of one, so that the ledger settles while data moves
    """

    number: int
    kind: Kind
    when: When
    amount: float
    waves: bool = False

    def __str__(self) -> str:
        waves = ", in short waves" if self.waves else ""
        return f"#{self.number} kill {self.kind}: {self.amount:g} {self.when}{waves}"


_PLAN: tuple[tuple[Kind, When, float], ...] = (
    (Kind.DRIVER, When.BATCHES, 10),
    (Kind.WORKER, When.BATCHES, 1),
    (Kind.TASK, When.BATCHES, 30),
    (Kind.ALL, When.BATCHES, 5),
    (Kind.DRIVER, When.BATCHES, 45),
    (Kind.WORKER, When.BATCHES, 25),
    (Kind.TASK, When.RECEIPTED, 0.0),
    (Kind.ALL, When.BATCHES, 60),
    (Kind.DRIVER, When.BATCHES, 80),
    (Kind.WORKER, When.BATCHES, 50),
    (Kind.TASK, When.SETTLED, 0.0),
    (Kind.ALL, When.TAKEOVER, 0.0),
    (Kind.DRIVER, When.SPARK, 1.5),
    (Kind.WORKER, When.BATCHES, 90),
    (Kind.TASK, When.TAKEOVER, 0.02),
    (Kind.ALL, When.SPARK, 4.0),
    (Kind.DRIVER, When.RECEIPTED, 0.0),
    (Kind.WORKER, When.WORKER, 0.1),
    (Kind.TASK, When.BATCHES, 75),
    (Kind.ALL, When.BATCHES, 97),
)


def plan(count: int, batches: int, seed: int = 1) -> list[KillTime]:
    """The moments of a test.

    :param count: how many
    :param batches: how many micro-batches a run has
    :param seed: draws the moments beyond the planned ones
    """
    draw = random.Random(seed)
    kinds = list(Kind)
    moments = []
    for index in range(count):
        kind, when, amount = (
            _PLAN[index]
            if index < len(_PLAN)
            else (kinds[index % len(kinds)], When.BATCHES, float(draw.randrange(1, batches - 1)))
        )
        moments.append(KillTime(index + 1, kind, when, amount, waves=index % 3 == 1))
    return moments
