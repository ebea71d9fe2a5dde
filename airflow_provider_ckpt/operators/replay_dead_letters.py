"""``CkptReplayDeadLettersOperator``: have parked dead letters sent once more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.dead_letters import Selection
    from airflow_provider_ckpt.replication.actions.actions import Errand


class CkptReplayDeadLettersOperator(CkptActOperator):
    """Have dead letters sent once more by the next run, through the pipeline as it stands then, beside the stream.

    What fails again is parked again; replaying one selection twice delivers once. Without any of these, all that are
    parked are meant. The result also holds ``records``, how many they are.

    :param error_types: of these error types only
    :param batches: of these batches only (``partition#seq``)
    :param since: dead-lettered at this time or later (ISO 8601; UTC if it names no zone)
    :param until: dead-lettered before this time
    :param query: that contain this text in their error, bytes or headers; ``null`` is a text like any other
    :param stop_at: only the first so many
    """

    template_fields: Sequence[str] = (
        *CkptActOperator.template_fields,
        "error_types",
        "batches",
        "since",
        "until",
        "query",
        "stop_at",
    )

    def __init__(
        self,
        *,
        error_types: Sequence[str] | str = (),
        batches: Sequence[str] | str = (),
        since: str | None = None,
        until: str | None = None,
        query: str | None = None,
        stop_at: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.error_types = error_types
        self.batches = batches
        self.since = since
        self.until = until
        self.query = query
        self.stop_at = stop_at

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from airflow_provider_ckpt.core.actions import ActKind
        from airflow_provider_ckpt.replication.actions.actions import on_letters

        return on_letters(errand, ActKind.REPLAY_LETTERS, self._selection(), _templates.text(self.query))

    def _selection(self) -> Selection:
        from airflow_provider_ckpt.replication.actions.actions import selection

        return selection(
            _templates.texts("error_types", self.error_types),
            _templates.texts("batches", self.batches),
            _templates.word(self.since),
            _templates.word(self.until),
            _templates.number("stop_at", self.stop_at),
        )
