"""Defects in claims and fences of the sinks, caught by tests on a real PostgreSQL and on real Delta tables."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_POSTGRES = "tests/integration/connectors/test_postgres_sink.py"
_BARRIER = "tests/formal/test_sink_rules.py::test_what_waits_inside_a_batch_when_the_fence_rises_never_commits"
_DELTA = "tests/integration/connectors/test_delta_conformance.py::TestNewTable"
_STREAMFORGE = "tests/integration/replication/test_streamforge.py"
_DELTA_FENCE = "tests/integration/connectors/test_delta_fence.py::TestFence"

OF_SINKS: Sequence[Mutant] = (
    Mutant(
        "postgres: the fence does not wait for whoever holds it",
        "connectors/postgres/sink.py",
        "        except psycopg2.errors.LockNotAvailable:\n            return False",
        "        except psycopg2.errors.LockNotAvailable:\n            return True",
        test=f"{_POSTGRES}::TestFence::test_it_ends_a_transaction_of_an_older_epoch_that_does_not_end_by_itself",
    ),
    Mutant(
        "postgres: a lane does not hold the fence to its end",
        "connectors/postgres/bookkeeping.py",
        "AND epoch = {{2}} FOR SHARE",
        "AND epoch = {{2}}",
        test=_BARRIER,
    ),
    Mutant(
        "postgres: the receipt is committed on its own, before the rows",
        "connectors/postgres/claim.py",
        'f"BEGIN ISOLATION LEVEL READ COMMITTED; {books.claim.format(*map(literal, values))}"',
        'f"BEGIN; {books.claim.format(*map(literal, values))}; COMMIT; BEGIN"',
        test=_BARRIER,
    ),
    Mutant(
        "postgres: epochs are compared the wrong way when a lane claims",
        "connectors/postgres/bookkeeping.py",
        "AND epoch = {{2}} FOR SHARE",
        "AND epoch >= {{2}} FOR SHARE",
        test=f"{_POSTGRES}::TestConformance::test_a_fence_refuses_whoever_has_an_older_epoch[append]",
    ),
    Mutant(
        "postgres: the fence can be lowered",
        "connectors/postgres/sink.py",
        "            if held[0][0] > epoch:\n",
        "            if held[0][0] < epoch:\n",
        test=f"{_POSTGRES}::TestConformance::test_a_fence_is_never_lowered[append]",
    ),
    Mutant(
        "postgres: a claim that finds a receipt delivers all the same",
        "connectors/postgres/claim.py",
        "            return False\n        if",
        '            cursor.executescript("ROLLBACK; BEGIN")\n            return True\n        if',
        test=f"{_POSTGRES}::TestConformance::test_a_second_delivery_finds_the_receipt_and_has_no_effect[append]",
    ),
    Mutant(
        "delta: the fence is a file alone, and no commit",
        "connectors/delta/fence.py",
        "        if table is None or table.transaction_version(layout.epoch_app) == epoch:",
        "        if table is None or epoch:",
        test=f"{_DELTA_FENCE}::test_a_commit_prepared_before_the_fence_loses_to_it",
    ),
    Mutant(
        "delta: epochs are compared the wrong way",
        "connectors/delta/fence.py",
        "    if newest > epoch:\n",
        "    if newest < epoch:\n",
        test=f"{_DELTA}::test_a_fence_refuses_whoever_has_an_older_epoch",
    ),
    Mutant(
        "delta: a commit does not look at the fence",
        "connectors/delta/committer.py",
        "                refuse_unless_current(self._layout, table, self._context.epoch)\n",
        "                pass\n",
        test=f"{_DELTA_FENCE}::test_a_stale_epoch_commits_nothing_and_its_files_go",
    ),
    Mutant(
        "delta: rows are committed without their receipts",
        "connectors/delta/committer.py",
        "{self._layout.epoch_app: self._context.epoch, self._layout.receipts_app: number},",
        "{self._layout.epoch_app: self._context.epoch},",
        test=f"{_DELTA}::test_a_batch_is_delivered_with_its_receipt",
    ),
    Mutant(
        "delta: a commit leaves out the receipts before it",
        "connectors/delta/receipts.py",
        '            "previous": previous,\n',
        '            "previous": None,\n',
        test=f"{_DELTA}::test_many_batches_go_through_one_writer",
    ),
    Mutant(
        "kafka: rows are committed without their receipt",
        "connectors/kafka/writer.py",
        "            producer.produce(self._receipts, receipt_value(receipt), "
        "receipt_key(self._context.ledger, task.key), 0)\n",
        "",
        test=f"{_STREAMFORGE}::test_commit_failure_causes_duplicate",
    ),
    Mutant(
        "kafka: no lane has the transactional id that a fence initialises",
        "connectors/kafka/transactions.py",
        '            "transactional.id": identity,\n',
        '            "transactional.id": f"{identity}{time.time()}",\n',
        test=f"{_STREAMFORGE}::test_scenario_7_rebalance_during_processing",
    ),
    Mutant(
        "kafka: a dead letter that cannot be written is taken for an outage",
        "connectors/kafka/writer.py",
        "            if not info.recoverable and info.type is not ErrorType.FENCED:\n",
        "            if info.type is ErrorType.FENCED:\n",
        test=f"{_STREAMFORGE}::test_scenario_6_dlq_failure",
    ),
)
