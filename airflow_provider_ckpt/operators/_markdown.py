"""Format a proposal as Markdown, for the user who approves or rejects it.

Reasons, user names, partitions and batches come from users and sources, so Markdown's special characters in them are
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.core.actions import BEHIND_FENCE, Act, ActKind
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.replication.actions.actions import changes

_MARKS = re.compile(r"([!-/:-@\[-`{-~])")
_LISTED = 20
_WARNINGS: Mapping[ActKind, str] = {
    ActKind.REWIND: "Everything from this position on is read and delivered **again**: an append sink gets it twice.",
    ActKind.SKIP: "The records of these batches are **not delivered**, and not dead-lettered either.",
    ActKind.ACCEPT_SINK: "The sink is taken as it is now. What it has lost and is not read again **stays lost** there.",
    ActKind.MOVE: "What was delivered so far **stays** in the present sink; the next run continues in another one.",
    ActKind.FORCE_STOP: "The run that holds the lease is fenced at once. Nothing runs until the pipeline is resumed.",
}


def escape(text: object) -> str:
    """Escape Markdown's special characters and replace control characters by spaces: one line, shown literally."""
    line = "".join(char if char.isprintable() else " " for char in str(text))
    return _MARKS.sub(r"\\\1", line)


def question(proposal: Proposal, document: Mapping[str, Any]) -> str:
    """Return the body of the approval question.

    :param proposal: the proposed action
    :param document: result document of the action's dry run
    """
    act = proposal.act
    what, pipeline = escape(act.kind.value.replace("_", " ")), escape(proposal.pipeline)
    parts = [
        f"**{what}** of pipeline **{pipeline}**, requested by **{escape(proposal.who)}**: "
        + escape(proposal.why or "no reason given"),
        _WARNINGS.get(act.kind, ""),
        _table(("", "before", "after"), changes(document["before"], document["after"])),
        _table(("applies to", "", ""), _about(act)),
        *still_open(document),
        _when(act, document["waits_for"]),
        f"Proposal `{proposal.id}`, SHA-256 `{proposal.digest}`: it can be used once.",
    ]
    return "\n\n".join(part for part in parts if part)


def still_open(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield Markdown about what a recovery does not settle: ranges that it leaves, and alarms that it does not end.

    :param document: result document; that of a recovery's preview has the keys ``left`` and ``alarms``
    """
    left = [
        (item["partition"], f"{item['range'][0]} up to {item['range'][1]} (exclusive)", item["why"])
        for item in document.get("left", ())
    ]
    yield _table(("left, not read again as a whole", "", "reason"), left)
    alarms = document.get("alarms", ())
    if alarms:
        yield "The next run **still fails**: this does not end the alarm about rows below the checkpoint."
    yield _table(
        ("seen in the source", "reason why this does not end it", "ended by"),
        [(f"{item['partition']}: {item['seen']}", item["why"], item["ended_by"]) for item in alarms],
    )


def _about(act: Act) -> Iterator[tuple[str, str, str]]:
    for name, span in act.spans:
        yield f"read again from {name}", f"from {span.start}", f"up to {span.end} (exclusive)"
    for letters in act.letters:
        yield f"dead letters of {letters.key}", letters.error_type, f"{letters.records} records"


def _when(act: Act, holder: Mapping[str, Any] | None) -> str:
    if holder is None:
        return "No run holds the lease now: the action is carried out as soon as it is approved."
    whose = f"{escape(holder['owner'])} (epoch {holder['epoch']})"
    if act.kind in BEHIND_FENCE:
        return f"{whose} holds the lease: the action is stored, and the next run applies it."
    return f"{whose} holds the lease: the action is stored, and that run applies it."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    found = list(rows)
    if not found:
        return ""
    lines = [head, ["---"] * len(head), *([escape(cell) for cell in row] for row in found[:_LISTED])]
    more = f"\n\nand {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + more
