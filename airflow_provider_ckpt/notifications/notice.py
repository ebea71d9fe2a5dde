"""What a person is told of a run that needs one: how much of what, where it is, and what to do about it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_LISTED = 5
_LONGEST = 300


class Reason(StrEnum):
    """Why a person is told of a run."""

    DEAD_LETTERS = "dead_letters"
    HELD = "held"
    EXPIRED = "expired"
    FAILED = "failed"


@dataclass(frozen=True)
class Notice:
    """One run, for a person; what templates see as ``ckpt``.

    :param pipeline: its name
    :param task: which task of which DAG run
    :param dead_lettered: records that this run dead-lettered
    :param errors: error types with counts
    :param where: where the dead letters are
    :param held: how many batches are held now
    :param held_batches: some of them: ``batch`` and ``error``
    :param expired: ranges that expired without a receipt: ``partition`` and ``range``
    :param failure: why the task failed, None if it did not
    """

    pipeline: str
    task: str
    dead_lettered: int = 0
    errors: Mapping[str, int] | None = None
    where: str | None = None
    held: int = 0
    held_batches: tuple[Mapping[str, Any], ...] = ()
    expired: tuple[Mapping[str, Any], ...] = ()
    failure: str | None = None

    @property
    def reasons(self) -> frozenset[Reason]:
        """What there is to tell; empty for a run that needs nobody."""
        found = {
            Reason.DEAD_LETTERS: self.dead_lettered,
            Reason.HELD: self.held,
            Reason.EXPIRED: self.expired,
            Reason.FAILED: self.failure,
        }
        return frozenset(reason for reason, there in found.items() if there)

    @property
    def subject(self) -> str:
        """One line."""
        parts = {
            Reason.FAILED: "failed",
            Reason.EXPIRED: f"{len(self.expired):,} ranges expired without a receipt",
            Reason.HELD: f"{self.held:,} batches held",
            Reason.DEAD_LETTERS: f"{self.dead_lettered:,} records dead-lettered",
        }
        return f"Pipeline {self.pipeline}: " + ", ".join(parts[reason] for reason in parts if reason in self.reasons)

    @property
    def text(self) -> str:
        """All of it, in plain lines; whatever comes from data or drivers is one line each, without control characters.

        A template's output is not rendered once more, so nothing in here is taken for a template.
        """
        return "\n".join(self._lines())

    @property
    def html(self) -> str:
        """The same as HTML, escaped."""
        return "".join(f"<p>{html.escape(line)}</p>" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.subject} ({plain(self.task)})"
        if self.failure:
            yield f"It failed: {plain(self.failure)}"
            yield f"What was delivered is settled, the rest waits. See: airflow ckpt status {self.pipeline}"
        if self.dead_lettered:
            yield f"Dead letters by error: {self._by_type()}. They are in {plain(self.where or 'the sink')}."
            yield (
                f"Look at them: airflow ckpt dlq show {self.pipeline}; once the cause is gone, "
                f"send them once more: airflow ckpt dlq replay {self.pipeline}"
            )
        if self.held:
            for batch in self.held_batches[:_LISTED]:
                yield f"Held: {plain(batch['batch'])}: {plain(batch['error'])}"
            yield (
                f"The checkpoint waits for them. Let them go on: airflow ckpt release {self.pipeline} --all; "
                f"or give them up: airflow ckpt skip {self.pipeline} BATCH --reason ..."
            )
        if self.expired:
            for item in self.expired[:_LISTED]:
                start, end = item["range"]
                yield f"Expired: {plain(item['partition'])} from {start} to {end}"
            yield f"Nothing accounts for these positions. See: airflow ckpt audit {self.pipeline}"

    def _by_type(self) -> str:
        return ", ".join(f"{count:,} {plain(kind)}" for kind, count in sorted((self.errors or {}).items())) or "unknown"


def plain(text: object) -> str:
    """A text as one line of at most 300 characters, without control characters."""
    shown = " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
