"""Airflow operators: run a pipeline in one task or in the tasks of a task group, and carry out actions on it."""
