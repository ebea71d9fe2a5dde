"""Airflow operators: ``replicate.CkptReplicateOperator``, and the single tasks of ``CkptReplicationTaskGroup``."""
