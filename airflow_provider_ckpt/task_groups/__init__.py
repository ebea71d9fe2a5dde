"""Airflow task group ``replication.CkptReplicationTaskGroup``: a run as separate tasks."""
