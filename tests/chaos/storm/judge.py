"""The judge: compare the journals with the ledger's tables, its audit log and the sink, and return the differences."""

from __future__ import annotations

import math
from collections.abc import Iterator

from airflow_provider_ckpt.core.batch_key import BatchKey
from tests.chaos.storm.evidence import VIOLATION, Evidence, Fault
from tests.chaos.storm.journal import LOOK, Entry
from tests.chaos.storm.judge_answers import judge_answers
from tests.chaos.storm.judge_events import Trail
from tests.chaos.storm.judge_state import judge_state

Seen = tuple[int, int]
"""A generation and the checkpoint in it."""


def judge(evidence: Evidence) -> list[Fault]:
    """Return every fault of a storm, after its pipelines were run to their end."""
    faults = list(judge_answers(evidence))
    for pipeline in evidence.pipelines:
        faults += _nothing_missed(evidence, pipeline)
        trail = Trail(evidence, pipeline)
        faults += trail.faults
        faults += judge_state(evidence, trail)
        faults += _checkpoint_never_went_back(evidence, pipeline)
    return faults


def _nothing_missed(evidence: Evidence, pipeline: str) -> Iterator[Fault]:
    """Check that the subscription returned each event once, in order, and all events of the table."""
    told = [row["id"] for row in evidence.events.get(pipeline, ())]
    if told != sorted(set(told)):
        yield Fault(VIOLATION, f"{pipeline}: the subscription told events twice, or out of order")
    missed = [row["id"] for row in evidence.kept.get(pipeline, ()) if row["id"] not in set(told)]
    if missed:
        yield Fault(VIOLATION, f"{pipeline}: the subscription missed events {missed[:10]}")


def _checkpoint_never_went_back(evidence: Evidence, pipeline: str) -> Iterator[Fault]:
    """Check that of two reads, one after the other, the later saw no lower checkpoint within a generation."""
    looks = [entry for entry in evidence.of(pipeline, LOOK) if entry.done]
    stored = {row["partition"]: (row["generation"], row["committed"]) for row in evidence.partitions.get(pipeline, ())}
    views = [(entry.tried, str(entry), _seen(entry)) for entry in looks] + [(math.inf, "the end", stored)]
    ended = sorted(((entry.told or math.inf, _seen(entry)) for entry in looks), key=lambda pair: pair[0])
    most: dict[str, Seen] = {}
    at = 0
    for began, actor, seen in views:
        while at < len(ended) and ended[at][0] < began:
            for name, found in ended[at][1].items():
                most[name] = max(most.get(name, found), found)
            at += 1
        for name, before in most.items():
            if name not in seen and evidence.collected and BatchKey(before[0], name, 0).is_side_partition:
                continue
            if name not in seen or seen[name] < before:
                yield Fault(VIOLATION, f"{pipeline}, {name}: {actor} saw {seen.get(name)} after {before} had been seen")


def _seen(entry: Entry) -> dict[str, Seen]:
    return {name: (generation, committed) for name, (generation, committed, _) in entry.result.items()}
