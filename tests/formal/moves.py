"""Enumerate all steps that are possible in a world: steps of the run, of lanes and of users, and faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from airflow_provider_ckpt.core.action import NEED_NEW_EPOCH, NEED_RECEIPTS_READ, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.invariants import Violation
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt, Verdict
from tests.formal import questions as q
from tests.formal.expectations import ONCE
from tests.formal.foreign import foreign
from tests.formal.leases import Leases
from tests.formal.memory import Memory
from tests.formal.numbered import Numbered
from tests.formal.pool import BrokenError, Machine, Pool
from tests.formal.probes import probes
from tests.formal.runs import options
from tests.formal.user_actions import deeds
from tests.formal.worlds import ADOPTED, RESTORED, UNSAVED, Bounds, Lane, Outside, Saved, Stage, World

Move = tuple[str, Any]
"""Text that describes an event to a person who reads a trace."""

_LEFT: Mapping[int, Set[ActionKind]] = {
    Stage.FREE: NEED_RECEIPTS_READ - {ActionKind.FORCE_STOP},
    Stage.FRESH: frozenset(),
    Stage.RUNNING: NEED_NEW_EPOCH - {ActionKind.FORCE_STOP},
}
"""Acts that are left for later; a forced stop never is, since it must hold even with attempts open."""


class Moves:
    """The moves of one configuration; what depends on a part of the world alone is found out once.

    :raises BrokenError: while they are enumerated, if the core breaks a property
    """

    def __init__(self, bounds: Bounds, pool: Pool) -> None:
        self.bounds = bounds
        self.pool = pool
        self.leases = Leases(pool.met)
        self.machines: Numbered[Machine] = Numbered()
        self.outsides: Numbered[Outside] = Numbered()
        self._saved: Numbered[Saved] = Numbered()
        self._foreign = foreign(bounds) if bounds.adopts else []
        self._checked: set[tuple[int, int, int]] = set()
        self._probed: set[int] = set()
        self._runs: dict[tuple[int, int, int], list[tuple[Move, int, int, bool]]] = {}
        self._claims: dict[tuple[int, int], list[tuple[Move, int]]] = {}
        self._actions: dict[tuple[int, int], list[tuple[Move, int]]] = {}

    def first(self) -> World:
        """The world in which the first run has just acquired, and nothing was ever sent."""
        names = "pq"[: self.bounds.partitions]
        parts = tuple(self.pool.start(Partition(name)) for name in names)
        machine = self.machines.number(Machine(Phase.RUNNING, 1, parts))
        return World(machine, 1, Stage.FRESH, self.outsides.number(Outside(1, memory=Memory(raised=1))), UNSAVED)

    def after(self, world: World) -> Iterator[tuple[Move, World]]:
        """Every move, and the world that it leads to."""
        machine, epoch, stage, outside, saved = world
        self._check(world)
        for move, claimed in self._claimed(outside, epoch):
            yield move, World(machine, epoch, stage, claimed, saved)
        following = self.leases.next(epoch, stage > Stage.FREE, self.outsides[outside].fence)
        if following <= self.bounds.epochs:
            yield ("acquire", following), World(machine, following, Stage.ACQUIRED, outside, saved)
        if stage == Stage.ACQUIRED and self._admits(world):
            yield ("fence and reconcile", epoch), self._take_over(world)
        if stage >= Stage.FRESH:
            yield from self._held(world)
        if stage == Stage.FREE and epoch < self.bounds.epochs:  # under an epoch of their own
            for move, after in self.actions(machine, stage):
                yield move, World(after, epoch + 1, stage, outside, saved)
        if self.bounds.backup:
            yield from self._backups(world)
        if self.bounds.sink_backup:
            yield from self._sink_backups(world)
        if self.bounds.adopts:
            yield from self._adoptions(world)

    def _held(self, world: World) -> Iterator[tuple[Move, World]]:
        """Yield the moves of the holder after it has reconciled, users' actions among them."""
        machine, epoch, stage, outside, saved = world
        for move, after, beyond, started in self._run(machine, epoch, outside):
            yield move, World(after, epoch, Stage.RUNNING if started else stage, beyond, saved)
        for move, after in self.actions(machine, stage):
            yield move, World(after, epoch, stage, outside, saved)
        yield ("release", epoch), World(machine, epoch, Stage.FREE, outside, saved)

    # Checks

    def _check(self, world: World) -> None:
        seen = (world.machine, world.epoch, world.outside)
        if seen in self._checked:
            return
        self._checked.add(seen)
        outside = self.outsides[world.outside]
        for held in (True, False):
            self.leases.check(world.epoch, held, outside.fence)
        for place in self.machines[world.machine].parts:
            self.pool.check(place, world.epoch)
            if not outside.memory.lost(outside.sink):  # the next run has to report a loss; see _admits
                self.pool.account(place, outside.sink)
            if place not in self._probed:
                self._probed.add(place)
                for question in probes(self.pool.partition(place)):
                    self.pool.ask(place, question)

    # Lanes

    def _claimed(self, number: int, epoch: int) -> list[tuple[Move, int]]:
        """Return the claims that lanes can make now."""
        known = self._claims.get((number, epoch))
        if known is None:
            outside = self.outsides[number]
            known = [(("claim", lane), self._claim(outside, lane, epoch)) for lane in outside.lanes]
            self._claims[number, epoch] = known
        return known

    def _claim(self, outside: Outside, lane: Lane, epoch: int) -> int:
        if lane.epoch != epoch:
            self.pool.met.reach("a lane claims between the takeover and its fence")
        verdict = q.VERDICTS[lane.instruction]
        receipt = q.receipt_of(lane.key, lane.range, verdict, epoch=lane.epoch, attempt=lane.attempt)
        once(outside.sink, receipt)
        rest = tuple(other for other in outside.lanes if other.key != lane.key)
        if len(rest) < len(outside.lanes) - 1:
            self.pool.met.reach("a lane finds the verdict that another attempt claimed")
        return self.outsides.number(outside._replace(sink=outside.sink | {receipt}, lanes=rest))

    # The lease

    def _admits(self, world: World) -> bool:
        """Return whether a run that has the lease continues, or reports that the sink was set back.

        :raises BrokenError: if it goes on though something is lost
        """
        if not self.bounds.sink_backup:
            return True
        outside = self.outsides[world.outside]
        partition = self.pool.partition(self.machines[world.machine].parts[0])
        if not outside.memory.admits(partition, outside.fence, outside.sink):
            self.pool.met.reach("a run refuses a sink that was set back")
            return False
        lost = outside.memory.lost(outside.sink)
        if lost:
            raise BrokenError(lost)
        return True

    def _take_over(self, world: World) -> World:
        """Fence the sink, then reconcile: nothing can come between that would make a difference."""
        outside = self.outsides[world.outside]
        if any(lane.epoch < world.epoch for lane in outside.lanes):
            self.pool.met.reach("a lane of an older epoch is shut out by the fence")
        machine = self.reconciled(self.machines[world.machine], outside.sink, world.epoch)
        lanes = tuple(lane for lane in outside.lanes if lane.epoch >= world.epoch)
        memory = outside.memory
        if self.bounds.sink_backup:
            memory = memory.taking(self.pool.partition(machine.parts[0]), outside.sink)._replace(raised=world.epoch)
        fenced = self.outsides.number(Outside(world.epoch, outside.sink, lanes, memory))
        return World(self.machines.number(machine), world.epoch, Stage.FRESH, fenced, world.saved)

    def reconciled(self, machine: Machine, sink: frozenset[Receipt], epoch: int) -> Machine:
        """Return the ledger after reconciling with the sink."""
        parts = []
        for place in machine.parts:
            partition = self.pool.partition(place)
            receipts = tuple(sorted(_told(partition, sink), key=_by_key))
            parts.append(self.pool.ask(place, (q.reconcile, receipts, epoch)))
        seen = max((receipt.key.generation for receipt in sink), default=1)
        return Machine(machine.phase, max(machine.generation, seen), tuple(parts))

    # A run

    def _run(self, number: int, epoch: int, beyond: int) -> list[tuple[Move, int, int, bool]]:
        """Return the moves of a run: name, ledger and outside after it, and whether something was begun."""
        known = self._runs.get((number, epoch, beyond))
        if known is None:
            known = self._runs[number, epoch, beyond] = []
            machine, outside = self.machines[number], self.outsides[beyond]
            for index, place in enumerate(machine.parts):
                partition = self.pool.partition(place)
                heard = sorted((r for r in outside.sink if r.key.partition == partition.id), key=_by_key)
                for question in (*options(partition, epoch, self.bounds), *((q.take, receipt) for receipt in heard)):
                    after = self.pool.ask(place, question)
                    if after == place:
                        continue
                    parts = (*machine.parts[:index], after, *machine.parts[index + 1 :])
                    started = question[0] is q.begin
                    sent = self._sent(partition, question, outside) if started else beyond
                    if question[0] is q.take and self.bounds.sink_backup:
                        memory = outside.memory.taking(self.pool.partition(after), [question[1]])
                        sent = self.outsides.number(outside._replace(memory=memory))
                    move = (question[0].__name__, question[1:])
                    known.append(
                        (move, self.machines.number(Machine(machine.phase, machine.generation, parts)), sent, started)
                    )
        return known

    def _sent(self, partition: Partition, question: q.Question, outside: Outside) -> int:
        batch = partition.batches[question[1]]
        lane = Lane(batch.key, batch.range, batch.attempts + 1, question[2], batch.instruction)
        fenced = self.bounds.sink_backup and outside.fence != lane.epoch  # the sink was set back under the run
        if fenced or any(receipt.key == lane.key for receipt in outside.sink):
            return self.outsides.number(outside)
        return self.outsides.number(outside._replace(lanes=tuple(sorted((*outside.lanes, lane)))))

    # People, and backups

    def actions(self, number: int, stage: int) -> list[tuple[Move, int]]:
        """Return the actions that change something, each with the resulting pipeline."""
        known = self._actions.get((number, stage))
        if known is None:
            known = []
            machine = self.machines[number]
            for deed in deeds(self.bounds, self.pool, machine, leave=_LEFT[stage]):
                after = self.pool.action(machine, deed)
                if after is not None and after != machine:
                    known.append(((deed.kind.value, deed[1:]), self.machines.number(after)))
            self._actions[number, stage] = known
        return known

    def _backups(self, world: World) -> Iterator[tuple[Move, World]]:
        if world.saved == UNSAVED:
            saved = self._saved.number(Saved(world.machine, world.epoch, world.stage > Stage.FREE))
            yield ("back up", world.epoch), World(*world[:4], saved)
        elif world.saved >= 0:
            old = self._saved[world.saved]
            stage = Stage.GONE if old.held else Stage.FREE
            yield ("restore", old.epoch), World(old.machine, old.epoch, stage, world.outside, RESTORED)

    def _sink_backups(self, world: World) -> Iterator[tuple[Move, World]]:
        outside = self.outsides[world.outside]
        memory = outside.memory
        if memory.fence == -1:
            copied = outside._replace(memory=memory._replace(fence=outside.fence, sink=outside.sink))
            yield ("copy the sink", outside.fence), world._replace(outside=self.outsides.number(copied))
        elif memory.fence >= 0:
            left = memory._replace(fence=-2, sink=frozenset())
            old = self.outsides.number(Outside(memory.fence, memory.sink, (), left))
            yield ("set the sink back", memory.fence), world._replace(outside=old)

    def _adoptions(self, world: World) -> Iterator[tuple[Move, World]]:
        outside = self.outsides[world.outside]
        if world.saved == UNSAVED and not outside.sink:
            for sink in self._foreign:
                adopted = self.outsides.number(Outside(outside.fence, sink))
                yield ("adopt", sorted(sink, key=_by_key)), World(*world[:2], Stage.GONE, adopted, ADOPTED)


def _told(partition: Partition, sink: frozenset[Receipt]) -> Iterator[Receipt]:
    """Return the receipts that are news, and those of a generation that has ended, which must not matter."""
    known = KnownReceipts(partition.generation, partition.committed)
    for receipt in sink:
        generation = receipt.key.generation
        news = generation < known.generation or not known.covers(generation, receipt.range.end)
        if receipt.key.partition == partition.id and news:
            yield receipt


def _by_key(receipt: Receipt) -> BatchKey:
    return receipt.key


def once(sink: frozenset[Receipt], new: Receipt) -> None:
    """Make sure that no position is delivered a second time in its generation.

    :raises BrokenError: if one is
    """
    if new.verdict is not Verdict.DELIVERED:
        return
    for old in sink:
        same = (old.key.generation, old.key.partition) == (new.key.generation, new.key.partition)
        if same and old.verdict is Verdict.DELIVERED and old.range.overlaps(new.range):
            message = f"{new.key} {new.range} is delivered, and so was {old.key} {old.range}"
            raise BrokenError([Violation(ONCE, new.key.partition, message, new.range.start)])
