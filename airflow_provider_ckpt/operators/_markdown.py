"""Format a proposed action as Markdown, for the user who approves or rejects it.

Reasons, user names, partitions and batches come from users and sources, so Markdown's special characters in them are
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_ckpt.core.action import NEED_COLUMNS, NEED_NEW_EPOCH, Action, ActionKind
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.core.ranges import position_text
from airflow_provider_ckpt.replication.actions.result_document import change_rows

_SPECIAL_CHARACTERS = re.compile(r"([!-/:-@\[-`{-~])")
_MAX_ROWS = 20
_WARNINGS: Mapping[ActionKind, str] = {
    ActionKind.REWIND: "Everything from this position on is read and delivered **again**: "
    "an append sink gets it twice.",
    ActionKind.SKIP: "The records of these batches are **not delivered**, and not dead-lettered either.",
    ActionKind.RESEND_TO_SINK: "The sink is accepted as it is now, and what it has lost is sent **again**.",
    ActionKind.KEEP_SINK: "The sink is accepted as it is now. What it has lost **stays lost** there.",
    ActionKind.MOVE: "What was delivered so far **stays** in the present sink; the next run continues in another one.",
    ActionKind.ADOPT: "The receipts of the other ledger count as this pipeline's own. Its runs are fenced: only for a "
    "ledger that is **lost**.",
    ActionKind.FORCE_STOP: "The run that holds the lease is fenced at once. "
    "Nothing runs until the pipeline is resumed.",
}


def escape(text: object) -> str:
    """Return a text as one line of Markdown that is shown literally; control characters become spaces."""
    line = "".join(char if char.isprintable() else " " for char in str(text))
    return _SPECIAL_CHARACTERS.sub(r"\\\1", line)


def approval_body(proposal: Proposal, document: Mapping[str, Any]) -> str:
    """Return the question that asks a user to approve a proposal, as Markdown.

    :param proposal: the proposed action
    :param document: result document of the action's dry run
    """
    action = proposal.action
    what, pipeline = escape(action.kind.value.replace("_", " ")), escape(proposal.pipeline)
    parts = [
        f"**{what}** of pipeline **{pipeline}**, requested by **{escape(proposal.actor)}**: "
        + escape(proposal.reason or "no reason given"),
        _WARNINGS.get(action.kind, ""),
        _table(("", "before", "after"), change_rows(document["before"], document["after"])),
        _table(("applies to", "", ""), _affected_rows(action)),
        *unsettled_sections(document),
        _describe_timing(action, document["waits_for"]),
        f"Proposal `{proposal.id}`, SHA-256 `{proposal.digest}`: it can be used once.",
    ]
    return "\n\n".join(part for part in parts if part)


def unsettled_sections(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield Markdown tables of the ranges that a recovery does not read, and of the alarms that it does not end.

    :param document: result document of an action; that of a recovery's preview has the ranges under the key ``left``
        and the alarms under ``alarms``
    """
    left = [
        (item["partition"], f"{position_text(item['range'][0])} up to {item['range'][1]} (exclusive)", item["reason"])
        for item in document.get("left", ())
    ]
    yield _table(("not read, or not completely", "", "reason"), left)
    alarms = document.get("alarms", ())
    if alarms:
        yield "The next run **still fails**: this does not end the alarm about rows below the checkpoint."
    yield _table(
        ("seen in the source", "reason why this does not end it", "ended by"),
        [(f"{item['partition']}: {item['seen']}", item["reason"], item["ended_by"]) for item in alarms],
    )


def _affected_rows(action: Action) -> Iterator[tuple[str, str, str]]:
    """Yield a table row for each changed column, range to read, and selection of dead letters of a batch.

    The three cells of a row are, for example, ``dead letters of 0#41``, ``Serialization`` and ``3 records``.

    :param action: the proposed action
    """
    for change in action.changes:
        yield change, "", ""
    for name, span in action.ranges:
        verb = "read from" if action.kind is ActionKind.RECOVER else "read again from"
        yield f"{verb} {name}", f"from {position_text(span.start)}", f"up to {span.end} (exclusive)"
    for dead_letters in action.dead_letters:
        yield f"dead letters of {dead_letters.key}", dead_letters.error_type, f"{dead_letters.records} records"


def _describe_timing(action: Action, holder: Mapping[str, Any] | None) -> str:
    """Return a sentence that says when an approved action takes effect: at once, or by which run.

    :param action: the action
    :param holder: owner and epoch of the lease (``waits_for`` in the result document); None if no run holds the lease
    """
    if action.kind in NEED_COLUMNS:
        return "The action is stored, and the next run follows the change if the source still has these columns."
    if holder is None:
        return "No run holds the lease now: the action is carried out as soon as it is approved."
    whose = f"{escape(holder['owner'])} (epoch {holder['epoch']})"
    if action.kind in NEED_NEW_EPOCH:
        return f"{whose} holds the lease: the action is stored, and the next run applies it."
    return f"{whose} holds the lease: the action is stored, and that run applies it."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of at most 20 rows; an empty text if there are no rows.

    :param head: titles of the columns
    :param rows: texts of the cells, which are escaped
    """
    found = list(rows)
    if not found:
        return ""
    lines = [head, ["---"] * len(head), *([escape(cell) for cell in row] for row in found[:_MAX_ROWS])]
    more = f"\n\nand {len(found) - _MAX_ROWS} more" if len(found) > _MAX_ROWS else ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + more
