"""Check that from every state a single run without faults can deliver everything once: no batch is stuck or lost.

The configuration's bounds do not apply to this run. It acquires the lease, fences, reconciles, resumes the pipeline,
releases held batches, plans all positions that no batch covers, and delivers until no batch waits.
"""

from __future__ import annotations

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.invariants import Violation
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.receipt import Receipt
from tests.formal import questions as q
from tests.formal.expectations import CAN_FINISH
from tests.formal.moves import Moves, once
from tests.formal.pool import BrokenError, Deed
from tests.formal.worlds import World

_TURNS = 8


class Finish:
    """Tries it, once for every ledger and sink."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._pool = moves.pool
        self._tried: set[tuple[int, frozenset[Receipt]]] = set()

    def check(self, world: World) -> None:
        """Run to the end.

        :raises BrokenError: if something stays behind, or a position is delivered twice
        """
        outside = self._moves.outsides[world.outside]
        if outside.memory.lost(outside.sink) or (world.machine, outside.sink) in self._tried:
            return  # where the sink was set back a person has to say what is to be done
        self._tried.add((world.machine, outside.sink))
        epoch = max(world.epoch, outside.fence) + 1
        sink = outside.sink
        machine = self._moves.reconciled(self._moves.machines[world.machine], sink, epoch)
        for deed in (Deed(ActionKind.RESUME), Deed(ActionKind.RELEASE)):
            after = self._pool.action(machine, deed)
            machine = machine if after is None else after
        assert machine.phase is Phase.RUNNING
        for place in machine.parts:
            sink = self._deliver(place, sink, epoch)

    def _deliver(self, place: int, sink: frozenset[Receipt], epoch: int) -> frozenset[Receipt]:
        for _ in range(_TURNS):
            partition = self._pool.partition(place)
            if not partition.blocking and not partition.gaps():
                break
            place, sink = self._turn(place, partition, sink, epoch)
        partition = self._pool.partition(place)
        self._pool.check(place, epoch)
        self._pool.account(place, sink)
        if partition.committed != partition.planned_end:
            left = [f"{batch.key} {batch.state.value}" for batch in partition.blocking.values()]
            message = f"committed stays at {partition.committed}, before {partition.planned_end}: {left}"
            raise BrokenError([Violation(CAN_FINISH, partition.id, message, partition.committed)])
        return sink

    def _turn(
        self, place: int, partition: Partition, sink: frozenset[Receipt], epoch: int
    ) -> tuple[int, frozenset[Receipt]]:
        for gap in partition.gaps():
            place = self._pool.ask(place, (q.plan, gap.start, gap.end))
        for seq, batch in self._pool.partition(place).batches.items():
            if batch.state is BatchState.PLANNED:
                place = self._pool.ask(place, (q.begin, seq, epoch, self._moves.bounds.at_most_once))
                claimed = {receipt.key: receipt for receipt in sink}.get(batch.key)
                if claimed is None:
                    verdict = q.VERDICTS[batch.instruction]
                    claimed = q.receipt_of(batch.key, batch.range, verdict, epoch=epoch, attempt=batch.attempts + 1)
                    once(sink, claimed)
                    sink |= {claimed}
                place = self._pool.ask(place, (q.take, claimed))
        return place, sink
