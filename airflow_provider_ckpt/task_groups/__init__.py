"""Airflow task groups: ``replication.CkptReplicationTaskGroup``, a run as tasks that a person can see."""
