"""Airflow operators: a run in one task, the tasks of ``CkptReplicationTaskGroup``, and actions on a pipeline."""
