"""Notice about a run that needs a user's attention: counts, locations and commands to enter, as text and HTML."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.ranges import position_text

_MAX_LISTED = 5
_MAX_LENGTH = 300


class Reason(StrEnum):
    """Reason to notify users of a run: dead letters, held batches, expired ranges, or a failure."""

    DEAD_LETTERS = "dead_letters"
    HELD = "held"
    EXPIRED = "expired"
    FAILED = "failed"


@dataclass(frozen=True)
class Notice:
    """Notice about one run. Templates of notification channels get it under the name ``ckpt``.

    :param pipeline: name of the pipeline
    :param task: name of the task with its DAG and DAG run, such as ``task load of shop, run manual__1``
    :param dead_lettered: number of records that this run dead-lettered
    :param errors: number of errors by error type, including the errors of dead letters; None if unknown
    :param where: place of the dead letters, such as ``topic orders-dlq of connection k``; None if unknown
    :param held: number of batches that are held now
    :param held_batches: the first held batches, each as a dict with ``batch`` (its name) and ``error`` (text)
    :param expired: ranges that expired without a receipt, each as a dict with ``partition`` and ``range`` (start, end)
    :param failure: sentence about the failure of the task; None if it did not fail
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
        """Reasons for which this run needs attention; empty if the run needs no attention."""
        found = {
            Reason.DEAD_LETTERS: self.dead_lettered,
            Reason.HELD: self.held,
            Reason.EXPIRED: self.expired,
            Reason.FAILED: self.failure,
        }
        return frozenset(reason for reason, applies in found.items() if applies)

    @property
    def subject(self) -> str:
        """One line that names the pipeline and what happened, such as ``Pipeline orders: 2 batches held``."""
        parts = {
            Reason.FAILED: "failed",
            Reason.EXPIRED: f"{len(self.expired):,} ranges expired without a receipt",
            Reason.HELD: f"{self.held:,} batches held",
            Reason.DEAD_LETTERS: f"{self.dead_lettered:,} records dead-lettered",
        }
        return f"Pipeline {self.pipeline}: " + ", ".join(parts[reason] for reason in parts if reason in self.reasons)

    @property
    def text(self) -> str:
        """The whole notice as plain text; texts from data or drivers are put on one line, without control characters.

        Airflow does not render the output of a template again, so template syntax in the data has no effect.
        """
        return "\n".join(self._lines())

    @property
    def html(self) -> str:
        """The whole notice as escaped HTML."""
        return "".join(f"<p>{html.escape(line)}</p>" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the notice, without markup."""
        yield f"{self.subject} ({one_line(self.task)})"
        if self.failure:
            yield f"It failed: {one_line(self.failure)}"
            yield f"What was delivered is settled; the next run does the rest. See: airflow ckpt status {self.pipeline}"
        if self.dead_lettered:
            yield f"Dead letters by error: {self._by_type()}. They are in {one_line(self.where or 'the sink')}."
            yield (
                f"Show them: airflow ckpt dlq show {self.pipeline}; once the cause is fixed, "
                f"send them again: airflow ckpt dlq replay {self.pipeline}"
            )
        if self.held:
            for batch in self.held_batches[:_MAX_LISTED]:
                yield f"Held: {one_line(batch['batch'])}: {one_line(batch['error'])}"
            yield (
                f"The checkpoint waits for them. Try them again: airflow ckpt release {self.pipeline} --all; "
                f"or skip them: airflow ckpt skip {self.pipeline} BATCH --reason ..."
            )
        if self.expired:
            for item in self.expired[:_MAX_LISTED]:
                start, end = item["range"]
                yield f"Expired: {one_line(item['partition'])} from {position_text(start)} to {end} (exclusive)"
            yield f"Nothing accounts for these positions. See: airflow ckpt audit {self.pipeline}"

    def _by_type(self) -> str:
        """Return the numbers of errors by type as text, such as ``2 Sink, 1 Processing``; else ``unknown``."""
        return (
            ", ".join(f"{count:,} {one_line(kind)}" for kind, count in sorted((self.errors or {}).items())) or "unknown"
        )


def one_line(text: object) -> str:
    """Return a text as one line of at most 300 characters, without control characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"
