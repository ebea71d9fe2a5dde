"""Stage and publish a refresh of a table step by step in a test."""

from __future__ import annotations

from typing import cast

from airflow_provider_ckpt.connectors.sink_protocol import ReplacingSink
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from tests.integration.connectors.batches import SIZE, content
from tests.integration.connectors.two_phase.harness import Run, TableHarness

SOURCE = "public.flights"


class Refresh:
    """A refresh that is staged, and published, by a run.

    :param run: the run, which has raised the fence
    :param generation: generation of the refresh
    """

    def __init__(self, run: Run, generation: int) -> None:
        self.run, self.generation = run, generation
        self.sink = cast("ReplacingSink", run.sink)

    def begin(self, abandoned_from: int | None = None) -> Refresh:
        """Prepare the staging.

        :param abandoned_from: first of the generations before it that were not published, by the ledger
        """
        self.sink.prepare_staging(self.run.epoch, self.generation, abandoned_from)
        return self

    def stage(self, *seqs: int, start: int = 0) -> Refresh:
        """Stage whole batches, each in a wave of its own; the number of a row is its position.

        :param seqs: the batches
        :param start: number that is added to their rows
        """
        for seq in seqs:
            given = BatchTask(self.key(seq), Range(seq * SIZE, (seq + 1) * SIZE), 1, bound=1000)
            staged = self.run.writer.deliver(given, content(seq + start))
            (outcome,) = self.run.commit(staged)
            assert outcome.outcome is AttemptOutcome.DELIVERED
        return self

    def publish(
        self, batches: int, limits: ReplaceLimits | None = None, instruction: Instruction = Instruction.DELIVER
    ) -> Outcome:
        """Publish a number of batches.

        :param batches: number of batches that the refresh has
        :param limits: limits beyond which a user is asked
        :param instruction: the instruction
        """
        end = batches * SIZE
        task = BatchTask(self.key(batches), Range(end, end + 1), 1, instruction)
        return self.sink.publish(task, self.run.epoch, limits)

    def key(self, seq: int) -> BatchKey:
        """Key of a batch."""
        return BatchKey(self.generation, SOURCE, seq)


def refresh(table: TableHarness, *, epoch: int = 1, abandoned_from: int | None = None) -> Refresh:
    """A refresh in a new run, whose generation is the run's epoch.

    :param table: the table
    :param epoch: epoch of the run
    :param abandoned_from: first of the generations before it that were not published, by the ledger
    """
    return Refresh(Run(table, epoch=epoch, replaces=True).fence(), epoch).begin(abandoned_from)
