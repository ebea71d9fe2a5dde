"""Writer for the conformance suite: like a lane, it makes dead letters of refused rows and delivers the other rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.row_filter import without_refused
from airflow_provider_ckpt.connectors.sink_protocol import Refused, Writer
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

Originals = Callable[[Mapping[int, ErrorInfo]], list[DeadLetter]]


class LaneWriter:
    """Writer that delivers a batch repeatedly, without the rows that the sink refused, until the batch has a verdict.

    :param writer: the sink's writer
    :param originals: function that returns a dead letter for each refused row, given the errors by row number
    """

    def __init__(self, writer: Writer, originals: Originals) -> None:
        self._writer = writer
        self._originals = originals

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome:
        """Deliver a batch; rows that the sink refuses become dead letters. Return the outcome.

        :param task: the batch
        :param content: its rows and dead letters
        """
        while isinstance(result := self._writer.deliver(task, content), Refused):
            content = without_refused(content, result.errors, self._originals(result.errors))
        return result

    def close(self) -> None:
        """Close the sink's writer."""
        self._writer.close()


def none_refused(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    """Fail the test; to be passed as ``originals`` if the sink must not refuse any row.

    :param errors: errors of the refused rows, by row number
    :raises AssertionError: always
    """
    raise AssertionError(f"the sink refuses {errors}")
