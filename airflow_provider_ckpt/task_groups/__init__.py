"""Airflow task group ``replication.CkptReplicationTaskGroup``: the steps of a run as separate tasks."""
