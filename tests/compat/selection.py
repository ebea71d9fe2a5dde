"""Select the tests that ``make compat`` runs in each environment: some minutes of those that use Airflow or Spark."""

from __future__ import annotations

SMALL = (
    # What Airflow reads and starts: DAG files, operators, the recovery DAG, commands, the provider's parts.
    "tests/unit/operators",
    "tests/unit/dag_factories",
    "tests/unit/task_groups",
    "tests/unit/example_dags",
    "tests/unit/cli",
    "tests/integration/airflow/test_provider_discovery.py",
    "tests/integration/cli/test_module.py",
    "tests/integration/cli/test_validate_and_plan.py",
    "tests/integration/operators/test_approvals.py",
    # Transforms, and what lanes read and write.
    "tests/integration/spark/test_expressions.py",
)
"""Node ids of pytest, for continuous integration."""

SELECTION = (
    *SMALL,
    # Commands as processes, on_kill, and an approval under a real scheduler.
    "tests/integration/cli/test_run.py",
    "tests/integration/cli/test_spark.py",
    "tests/integration/operators/test_on_kill.py",
    "tests/system/airflow/test_recovery.py::test_a_remedy_is_done_once_somebody_else_has_approved_it_and_the_trail_names_both",
    # Lanes on each engine: warm, submit, a standalone cluster, Connect.
    "tests/integration/engines/test_conformance.py::test_each_record_is_delivered_filtered_or_dead_lettered_and_none_twice",
    "tests/integration/engines/test_connect.py",
    "tests/integration/connectors/two_phase/test_conformance.py",
)
"""Node ids of pytest, for all the rest."""
