"""Writer of a sink as a lane uses it: rows that the sink refuses become dead letters, and the rest is delivered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.row_filter import without_refused
from airflow_provider_ckpt.connectors.sink_protocol import Refused, Writer
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

Originals = Callable[[Mapping[int, ErrorInfo]], list[DeadLetter]]


class LaneWriter:
    """Writer that delivers each batch to its verdict.

    :param writer: the sink's writer
    :param originals: function that makes a dead letter of each refused row, as a lane does from its source
    """

    def __init__(self, writer: Writer, originals: Originals) -> None:
        self._writer = writer
        self._originals = originals

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome:
        """Deliver a batch without the rows that the sink refuses."""
        while isinstance(result := self._writer.deliver(task, content), Refused):
            content = without_refused(content, result.errors, self._originals(result.errors))
        return result

    def close(self) -> None:
        """Close the sink's writer."""
        self._writer.close()


def none_refused(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    """Fail: the test sends no row that its sink refuses."""
    raise AssertionError(f"the sink refuses {errors}")
