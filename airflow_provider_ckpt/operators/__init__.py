"""Airflow operators: replication in one task, the tasks of ``CkptReplicationTaskGroup``, and actions on a pipeline."""
