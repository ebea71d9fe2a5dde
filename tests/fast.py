"""List the integration and system tests of ``make test-fast``: each connector once, and one run of each kind.

An entry is the node id of a test, of a class, or of one test with certain parameters. All unit tests run in addition.
"""

from __future__ import annotations

from collections.abc import Mapping

_RUNS = "tests/integration/replication"
_COPIES = f"{_RUNS}/test_run_kafka_to_kafka.py"
_FILES = f"{_RUNS}/test_run_files.py"
_JDBC = f"{_RUNS}/test_run_jdbc.py"
_SQL = f"{_RUNS}/test_run_sql.py"
_CONNECTORS = "tests/integration/connectors"
_CHAOS = "tests/integration/chaos/test_chaos.py::test_no_crash_point_loses_or_doubles_anything"
_TWO_PHASE = f"{_CONNECTORS}/two_phase/test_conformance.py"

SOURCES: Mapping[str, Mapping[str, str]] = {
    "files": {
        "copy": f"{_FILES}::test_every_format_is_read_back_as_it_was_written",
        "transform": f"{_FILES}::test_rows_of_parquet_files_pass_through_a_transform_and_new_files_follow",
        "bad row": f"{_FILES}::test_a_rejected_row_of_a_parquet_file_is_replayed_with_all_its_columns",
    },
    "jdbc": {
        "copy": f"{_JDBC}::test_every_row_once_then_what_is_new_and_nothing_without_spark",
        "transform": f"{_JDBC}::test_what_transform_and_target_refuse_becomes_dead_letters_with_the_row_as_it_was",
        "bad row": f"{_JDBC}::test_what_transform_and_target_refuse_becomes_dead_letters_with_the_row_as_it_was",
    },
    "kafka": {
        "copy": f"{_RUNS}/test_run_kafka.py::test_every_message_is_delivered_once_from_run_to_run",
        "transform": f"{_COPIES}::test_a_time_that_is_not_in_milliseconds_costs_its_message_where_it_is_used",
        "bad row": f"{_RUNS}/test_run_kafka.py::test_a_bad_message_costs_itself_and_its_dead_letter_says_everything",
    },
    "postgres": {
        "copy": f"{_RUNS}/test_run_postgres.py::test_the_first_run_delivers_every_row_once_and_the_books_balance",
        "transform": f"{_RUNS}/test_run_postgres.py::test_where_and_select_with_a_cast_filter_and_convert",
        "bad row": f"{_RUNS}/test_run_postgres.py::test_a_failing_expression_costs_its_record_only",
    },
    "sql": {
        "copy": f"{_SQL}::test_rows_of_a_file_of_sqlite_reach_postgresql",
        "transform": f"{_SQL}::test_rows_of_mariadb_are_copied_and_a_zero_date_costs_its_row_only",
        "bad row": f"{_SQL}::test_rows_of_mariadb_are_copied_and_a_zero_date_costs_its_row_only",
    },
}
"""One test by type of source and by what it does."""

SINKS: Mapping[str, Mapping[str, str]] = {
    "delta": {
        "copy": _TWO_PHASE,
        "bad row": f"{_CONNECTORS}/two_phase/test_delivery.py::TestDeadLetters",
        "crash": f"{_CHAOS}[files-delta]",
        "fence": f"{_CONNECTORS}/two_phase/test_fence.py::TestFence",
    },
    "files": {
        "copy": f"{_FILES}::test_every_format_is_read_back_as_it_was_written",
        "bad row": f"{_FILES}::test_bad_records_lie_beside_the_directory_and_are_replayed_once",
        "crash": f"{_CONNECTORS}/files/test_sink_commit.py::TestInterruptions",
        "fence": f"{_CONNECTORS}/files/test_sink_conformance.py",
    },
    "iceberg": {
        "copy": f"{_RUNS}/test_run_iceberg.py::test_every_record_is_delivered_once_from_run_to_run",
        "bad row": f"{_CONNECTORS}/two_phase/test_delivery.py::TestDeadLetters",
        "crash": f"{_RUNS}/test_run_iceberg.py::test_a_driver_that_dies_around_its_commit_neither_loses_nor_doubles",
        "fence": f"{_CONNECTORS}/two_phase/test_fence.py::TestFence",
    },
    "kafka": {
        "copy": f"{_COPIES}::test_a_copy_keeps_all_of_a_message_and_delivers_it_once",
        "bad row": f"{_COPIES}::test_a_bad_message_goes_to_the_dead_letter_topic_and_is_found_there",
        "crash": f"{_CHAOS}[kafka-kafka]",
        "fence": f"{_CONNECTORS}/kafka/test_sink_conformance.py",
    },
    "postgres": {
        "copy": f"{_RUNS}/test_run_postgres.py::test_only_new_rows_are_replicated",
        "bad row": f"{_RUNS}/test_bad_records.py",
        "crash": f"{_CHAOS}[postgres-postgres]",
        "fence": f"{_CONNECTORS}/postgres/test_sink.py",
    },
    "sql": {
        "copy": f"{_SQL}::test_every_row_of_postgresql_once_then_what_is_new_and_nothing_without_spark",
        "bad row": f"{_SQL}::test_what_transform_and_target_refuse_becomes_dead_letters_and_is_replayed",
        "crash": f"{_CHAOS}[postgres-mariadb]",
        "fence": f"{_CONNECTORS}/sql/test_sink.py::TestFence",
    },
}
"""One test, class or file by type of sink and by what it does."""

RUNS: Mapping[str, str] = {
    "command line": "tests/integration/cli/test_run.py::test_a_run_needs_the_ledgers_tables_and_nothing_else",
    "DAG": "tests/system/airflow/test_deaths.py"
    "::test_a_worker_killed_after_the_delivery_and_before_the_settlement_is_settled_from_the_receipts",
    "takeover": f"{_RUNS}/test_two_at_once.py::test_an_expired_lease_is_taken_over_and_its_run_stores_nothing_more",
}
"""Runs as users start them."""

ENTRIES = frozenset(entry for tests in (*SOURCES.values(), *SINKS.values(), RUNS) for entry in tests.values())


def covers(entry: str, nodeid: str) -> bool:
    """Return whether a test is the entry, one of its parameters, or stands in its file or class."""
    return nodeid == entry or nodeid.startswith((f"{entry}::", f"{entry}["))
