"""After the storm, run each pipeline once without faults, and check that the run can finish all batches."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from random import Random

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from tests.chaos.storm.commands import Commands
from tests.chaos.storm.evidence import VIOLATION, Fault
from tests.chaos.storm.journal import Expect
from tests.chaos.storm.lanes import Lanes
from tests.chaos.storm.run import Run
from tests.chaos.storm.scene import PIPELINES
from tests.chaos.storm.sink import AbstractSink

_ROUNDS = 50
_TTL = timedelta(seconds=60)


def calm_down(commands: Commands, sink: AbstractSink) -> list[Fault]:
    """Run every pipeline to its end, and return a fault for each batch that cannot be finished."""
    faults = []
    for pipeline, pipe in PIPELINES.items():
        lease = commands.acquire(pipeline, "calm", _TTL, at_least=sink.epoch(pipeline), force=True).value
        if lease is None:
            faults.append(Fault(VIOLATION, f"{pipeline}: nobody can take its lease"))
            continue
        lanes = Lanes(sink, Random(0))
        run = Run(commands, sink, lanes, Random(0), lease, pipe)
        if not run.open() or not _finish(run):
            left = {name: sorted(part.blocking) for name, part in run.partitions.items() if part.blocking}
            faults.append(Fault(VIOLATION, f"{pipeline}: an honest run cannot finish it; left are {left}"))
        commands.release(lease)
    return faults


def _finish(run: Run) -> bool:
    commands, lease = run.commands, run.lease
    commands.act_under_lease(lease, Action(ActionKind.RESUME))
    commands.act_under_lease(lease, Action(ActionKind.RELEASE))
    for _ in range(_ROUNDS):
        run.look()
        blocking = [batch for part in run.partitions.values() for batch in part.blocking.values()]
        if not blocking:
            return all(part.committed == part.planned_end for part in run.partitions.values())
        now = datetime.now(UTC)
        due = [
            b.key for b in blocking if b.state is BatchState.PLANNED and (b.not_before is None or b.not_before <= now)
        ]
        started = (
            commands.begin(lease, due, now=now, at_most_once=run.pipe.at_most_once, expect=Expect.VALID).value or []
        )
        reports = [run.lanes.claim(run.pipeline, batch, lease.epoch) for batch in started]
        outcomes = [report for report in reports if report is not None]
        commands.settle(lease, outcomes, now=datetime.now(UTC), policy=DeliveryPolicy(), unit=lambda: 0.0)
        time.sleep(0.002 if due else 0.02)
    return False
