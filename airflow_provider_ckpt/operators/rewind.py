"""``CkptRewindOperator``: set a checkpoint back, so that what follows is read and delivered again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.actions import Errand


class CkptRewindOperator(CkptActOperator):
    """Begin a new generation at an earlier position; what was unresolved is superseded. Needs a ``reason``.

    Say how far in just one of three ways. A sink that appends gets the rows twice.

    :param to_position: the first position to read again
    :param to_time: back to where the checkpoint stood then (ISO 8601; UTC if it names no zone)
    :param to_batch: the batch to read again first (``partition#seq``), by its receipt in the sink
    :param partition: the source partition; may be left out where there is just one, and of a time
    """

    template_fields: Sequence[str] = (
        *CkptActOperator.template_fields,
        "to_position",
        "to_time",
        "to_batch",
        "partition",
    )
    needs_reason = True

    def __init__(
        self,
        *,
        to_position: int | str | None = None,
        to_time: str | None = None,
        to_batch: str | None = None,
        partition: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.to_position = to_position
        self.to_time = to_time
        self.to_batch = to_batch
        self.partition = partition

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from airflow_provider_ckpt.core.actions import Act, ActKind
        from airflow_provider_ckpt.replication.actions.actions import behind_fence
        from airflow_provider_ckpt.replication.actions.rewind_target import Goal, positions

        goal = Goal(
            _templates.number("to_position", self.to_position),
            _templates.word(self.to_time),
            _templates.word(self.to_batch),
        )
        where = positions(errand, goal, _templates.word(self.partition))
        return behind_fence(errand, Act(ActKind.REWIND, positions=where))
