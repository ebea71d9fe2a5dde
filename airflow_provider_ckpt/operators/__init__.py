"""Airflow operators: a replication run in one task, the tasks of ``CkptReplicationTaskGroup``, and actions on a
pipeline.
"""
