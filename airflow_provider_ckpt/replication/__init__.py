"""Use cases without Airflow: acquire, reconcile, plan, execute, settle; called by the operators and the CLI."""
