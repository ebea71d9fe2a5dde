"""Carry out runs and actions without Airflow: acquire, reconcile, plan, execute, settle; for operators and CLI."""
