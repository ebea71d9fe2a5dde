"""The use cases, free of Airflow: acquire, reconcile, plan, execute, settle. Operators and CLI call these."""
