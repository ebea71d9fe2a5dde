"""Provide the conformance suite of sinks: a connector's tests subclass :class:`SinkConformance` and give it a harness.

For a two-phase sink, the suite commits batches by the committer that the harness opens; the tests are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.row_filter import without_refused
from airflow_provider_ckpt.connectors.sink_protocol import Refused
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.testing.sink_dead_letters import DeadLetterConformance
from airflow_provider_ckpt.testing.sink_delivery import DeliveryConformance
from airflow_provider_ckpt.testing.sink_fence import FenceConformance
from airflow_provider_ckpt.testing.sink_harness import (
    Run,
    SinkHarness,
    content,
    ids,
    task,
)


class SinkConformance(DeliveryConformance, DeadLetterConformance, FenceConformance, ABC):
    """Conformance suite of a sink, to be subclassed by the connector's tests."""

    @pytest.fixture
    @abstractmethod
    def harness(self, *args: Any) -> SinkHarness:
        """Return the connector's harness, on an empty target.

        :param args: pytest fixtures that the implementation needs
        """


class RefusingSinkConformance(SinkConformance):
    """Conformance suite of a sink whose target refuses rows with certain ids (:attr:`SinkHarness.refused`)."""

    def partly_refused(self, harness: SinkHarness, seq: int = 0) -> BatchContent:
        """Return the content of a batch whose second row the target refuses.

        :param harness: the harness, which names a refused id
        :param seq: number of the batch
        """
        whole = content(seq)
        values = [*ids(seq)[:1], harness.refused[0], *ids(seq)[2:]]
        return replace(whole, rows=whole.rows.set_column(1, "id", pa.array(values, pa.int64())))

    def test_refused_rows_are_named_and_nothing_is_committed(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            refused = run.take_over().writer.deliver(task(0), self.partly_refused(harness))

            assert isinstance(refused, Refused)
            assert [(number, error.type) for number, error in refused.errors.items()] == [(1, ErrorType.SINK)]
            assert (harness.target(), run.receipts()) == ([], [])

    def test_the_others_are_delivered_with_a_dead_letter_of_each(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0), self.partly_refused(harness))

            assert (outcome.outcome, outcome.dead_letters) == (AttemptOutcome.DELIVERED, {"Sink": 1})
            (receipt,) = run.receipts()
            assert (receipt, receipt.counts) == (outcome.receipt, Counts(10, 9, 0, 1))
            assert harness.target() == [0, *ids(0)[2:]]
            assert [stored.position for stored in harness.dead_letters(run.context)] == [1]

    def test_the_others_are_delivered_where_refused_rows_are_skipped(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            given = self.partly_refused(harness)
            refused = run.take_over().writer.deliver(task(0), given)
            assert isinstance(refused, Refused)

            outcome = run.send(task(0), without_refused(given, refused.errors, [], skipped=1))

            assert (outcome.outcome, outcome.dead_letters) == (AttemptOutcome.DELIVERED, {})
            (receipt,) = run.receipts()
            assert (receipt, receipt.counts) == (outcome.receipt, Counts(10, 9, 1, 0))
            assert harness.target() == [0, *ids(0)[2:]]

    def test_a_refused_batch_that_is_given_up_leaves_nothing_with_the_next_one(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            assert isinstance(run.take_over().writer.deliver(task(0), self.partly_refused(harness)), Refused)

            after = run.send(task(1, partition="other"), content(1))

            assert after.outcome is AttemptOutcome.DELIVERED
            assert harness.target() == ids(1)
            assert [receipt.key for receipt in run.receipts()] == [after.key]

    def test_a_refused_batch_that_comes_with_other_rows_than_the_rest_holds_these(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            assert isinstance(run.take_over().writer.deliver(task(0), self.partly_refused(harness)), Refused)

            outcome = run.send(task(0), content(0, filtered=5))

            assert outcome.receipt is not None
            assert outcome.receipt.counts == Counts(10, 5, 5, 0)
            assert harness.target() == ids(0)[5:]

    def test_a_refused_batch_is_rolled_back_when_its_writer_is_closed(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            assert isinstance(run.take_over().writer.deliver(task(0), self.partly_refused(harness)), Refused)

            run.writer.close()

            assert (harness.target(), run.receipts()) == ([], [])
            with Run(harness, 2) as new:
                assert not new.take_over().send(task(0, attempt=2), content(0)).receipt_existed
            assert harness.target() == ids(0)
