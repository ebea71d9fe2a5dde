"""Choose the branches of the DAG that follow a settled run (semantics, section 7)."""

from __future__ import annotations

from enum import StrEnum


class Route(StrEnum):
    """Branch of the DAG that is followed after a run is settled.

    - ``retry``: a batch waits for another round
    - ``dead_letters``: the run stored dead letters
    - ``hold``: a batch is held
    - ``done``: no batch waits or is held
    """

    RETRY = "retry"
    DEAD_LETTERS = "dead_letters"
    HOLD = "hold"
    DONE = "done"


def routes(*, dead_lettered: int, waiting: int, held: int) -> list[Route]:
    """Return the branches of the DAG that follow a settled run; :class:`Route` explains them.

    :param dead_lettered: number of records that the run stored as dead letters
    :param waiting: number of batches that wait for another round
    :param held: number of held batches
    """
    chosen = [Route.DEAD_LETTERS] if dead_lettered else []
    if waiting:
        chosen.append(Route.RETRY)
    if held:
        chosen.append(Route.HOLD)
    return chosen if waiting or held else [*chosen, Route.DONE]
