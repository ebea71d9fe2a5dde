"""Record the changes that the ledger's commands make to partitions in a test, and replay them in the core.

A trace consists of JSON lines, one for each partition that a command stored: its state before, the events, and its
state after. The checker requires that the core allows each event in the state that the earlier events led to, and that
the last event leads to the state after.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import Batch, BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.reconcile import import_receipts
from airflow_provider_ckpt.core.rewind import rewind
from airflow_provider_ckpt.core.tickets import Event, InFlightTicket, PlannedTicket
from airflow_provider_ckpt.ledger.store import partitions
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork

Line = Mapping[str, Any]
_LATER = datetime.max.replace(tzinfo=UTC)


@contextmanager
def recording(file: Path) -> Iterator[None]:
    """Append to ``file`` what commands of this process store meanwhile, from whichever thread."""
    heard = threading.local()
    begin, write, happen = UnitOfWork.__init__, partitions.write, Event.__init__
    lock = threading.Lock()

    def started(work: UnitOfWork, *args: Any, **named: Any) -> None:
        heard.events = []
        begin(work, *args, **named)

    def happened(event: Event, *args: Any, **named: Any) -> None:
        happen(event, *args, **named)
        if hasattr(heard, "events"):
            heard.events.append(event)

    def written(
        connection: Connection, pipeline: str, items: Sequence[partitions.LoadedPartition], now: datetime
    ) -> None:
        lines = [json.dumps(_line(item, heard.events)) for item in items if item.before_row]
        heard.events = []
        write(connection, pipeline, items, now)
        with lock, file.open("a") as out:
            out.writelines(f"{line}\n" for line in lines)

    with (
        patch.object(UnitOfWork, "__init__", started),
        patch.object(partitions, "write", written),
        patch.object(Event, "__init__", happened),
    ):
        yield


def complaints(file: Path) -> list[str]:
    """Return the parts of a trace that the core does not allow; empty for a good or an empty trace."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [f"line {number}: {what}" for number, line in enumerate(lines, 1) for what in _wrong(json.loads(line))]


def _wrong(line: Line) -> Iterator[str]:
    replayed, left = _partition(line["before"]), _partition(line["after"])
    for event in line["events"]:
        try:
            _replay(replayed, event, left)
        except (CkptError, KeyError, ValueError, AssertionError) as error:
            yield f"{event['kind']} of {event['seq']} is not allowed: {error!r}"
            return
    if _state(replayed) != _state(left):
        yield f"the events lead to {_state(replayed)}, but {_state(left)} was stored"


# What is written


def _line(item: partitions.LoadedPartition, events: Iterable[Event]) -> dict[str, Any]:
    row = item.before_row
    met = [b for b in item.before.values() if b.state is not BatchState.SENT or b.range.end > row["committed"]]
    before = Partition(
        item.partition.id,
        generation=row["generation"],
        base=row["base"],
        committed=row["committed"],
        next_seq=row["next_seq"],
        planned_end=row["planned_end"],
        limit=row["side_end"],
        phase=item.partition.phase,
        batches=met,
    )
    mine = [event for event in events if event.partition in ("", item.partition.id)]
    for event in reversed(mine):
        if event.kind == "phase":
            before.phase = Phase(event.detail["before"])
    said = [{"kind": e.kind, "generation": e.generation, "seq": e.seq, "detail": dict(e.detail)} for e in mine]
    return {"before": _state(before), "events": said, "after": _state(item.partition)}


def _state(partition: Partition) -> dict[str, Any]:
    """Return the part of a state that the events decide; failures are counted by policy, which events do not name."""
    return {
        "partition": partition.id,
        "generation": partition.generation,
        "base": partition.base,
        "committed": partition.committed,
        "next_seq": partition.next_seq,
        "planned_end": partition.planned_end,
        "limit": partition.limit,
        "phase": partition.phase.value,
        "batches": [
            [
                *(seq, b.range.start, b.range.end, b.state.value, b.attempts, b.epoch),
                *(b.cancelled, b.instruction.value if b.state is not BatchState.SENT else ""),
            ]
            for seq, b in sorted(partition.batches.items())
        ],
    }


def _partition(state: Mapping[str, Any]) -> Partition:
    batches = [
        Batch(
            BatchKey(state["generation"], state["partition"], seq),
            Range(start, end),
            BatchState(name),
            attempts=attempts,
            epoch=epoch,
            cancelled=cancelled,
            instruction=Instruction(instruction or Instruction.DELIVER),
        )
        for seq, start, end, name, attempts, epoch, cancelled, instruction in state["batches"]
    ]
    return Partition(
        state["partition"],
        generation=state["generation"],
        base=state["base"],
        committed=state["committed"],
        next_seq=state["next_seq"],
        planned_end=state["planned_end"],
        limit=state["limit"],
        phase=Phase(state["phase"]),
        batches=batches,
    )


# What is replayed


def _replay(part: Partition, event: Mapping[str, Any], left: Partition) -> None:
    kind, seq, detail = event["kind"], event["seq"], event["detail"]
    if kind in _WITHOUT_EFFECT:
        return
    if kind in _ENDINGS:
        _ENDINGS[kind](part, part.in_flight_ticket(seq))
    elif kind in _STEPS:
        _STEPS[kind](part, seq, detail, left)
    else:
        raise AssertionError("nothing in the core is called that")


_WITHOUT_EFFECT = frozenset(
    {
        *("ack_duplicate", "ack_spurious", "outcome_ignored", "unconfirmed"),
        *("expired_unreceipted", "side_partition_started", "dead_letters_discarded", "phase_unchanged"),
    }
)
"""Commands that change only the index or a new partition, or that change nothing."""

_SOME_ERROR = ErrorInfo(ErrorType.GENERIC, "")

_ENDINGS: Mapping[str, Callable[[Partition, InFlightTicket], Any]] = {
    "not_attempted": Partition.not_attempted,
    "abandoned": Partition.abandon,
    "fenced": Partition.fence,
    "cancelled": Partition.cancel,
    "died_alone": lambda part, ticket: part.died_alone(ticket, limit=1_000_000),
    "failed": lambda part, ticket: part.fail(ticket, _SOME_ERROR, not_before=None),
}


def _ticket(part: Partition, seq: int) -> PlannedTicket | InFlightTicket:
    return part.in_flight_ticket(seq) if seq in part.in_flight else part.planned_ticket(seq)


def _begin(part: Partition, seq: int, detail: Mapping[str, Any], _: Partition) -> None:
    sent = detail["state"] == BatchState.SENT
    part.begin(part.planned_ticket(seq), epoch=detail["epoch"], now=_LATER, at_most_once=sent, advance=False)
    assert part.batches[seq].attempts == detail["attempt"]


def _ack(part: Partition, seq: int, detail: Mapping[str, Any], _: Partition) -> None:
    batch = part.batches[seq]
    receipt = _receipt(batch.key, batch.range, Verdict(detail["verdict"]), Counts(**detail["counts"]))
    assert receipt.counts.is_balanced
    part.ack(receipt, advance=False)
    assert part.batches[seq].receipt == receipt


def _import(part: Partition, seq: int, detail: Mapping[str, Any], left: Partition) -> None:
    stays = left.batches.get(seq)
    verdict = _VERDICT_OF.get(stays.state, Verdict.DELIVERED) if stays else Verdict.DELIVERED
    key = BatchKey(part.generation, part.id, seq)
    import_receipts(part, [_receipt(key, Range(*detail["range"]), verdict, Counts())], advance=False)


_VERDICT_OF = {BatchState.REJECTED: Verdict.REJECTED, BatchState.SKIPPED: Verdict.VOID}


def _receipt(key: BatchKey, span: Range, verdict: Verdict, counts: Counts) -> Receipt:
    return Receipt(key, span, verdict, 0, 1, counts, _LATER)


def _checkpoint(part: Partition, _: int, detail: Mapping[str, Any], __: Partition) -> None:
    part.advance()
    assert part.committed == detail["after"], f"the core moves it to {part.committed}"


def _rewind(part: Partition, _: int, detail: Mapping[str, Any], __: Partition) -> None:
    to = detail["after"]
    assert not part.blocking
    rewind(part, to["committed"], generation=to["generation"], reason="")


def _phase(part: Partition, _: int, detail: Mapping[str, Any], __: Partition) -> None:
    part.phase = Phase(detail["after"])


_STEPS: Mapping[str, Callable[[Partition, int, Mapping[str, Any], Partition], Any]] = {
    "planned": lambda part, _, detail, __: part.plan(Range(*detail["range"]), records=detail["records"]),
    "begun": _begin,
    "acked": _ack,
    "receipt_imported": _import,
    "checkpoint": _checkpoint,
    "rewound": _rewind,
    "phase": _phase,
    "run_alone": lambda part, seq, *_: part.run_alone(part.planned_ticket(seq)),
    "instructed": lambda part, seq, detail, _: part.instruct(
        _ticket(part, seq), Instruction(detail["instruction"]), reason=""
    ),
    "held": lambda part, seq, *_: part.hold(_ticket(part, seq), reason=""),
    "released": lambda part, seq, *_: part.release(part.held_ticket(seq)),
    "skipped": lambda part, seq, *_: part.skip(part.planned_ticket(seq), reason=""),
    "superseded": lambda part, seq, *_: part.supersede(seq),
}
