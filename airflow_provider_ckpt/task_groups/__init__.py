"""Airflow task groups, for one pipeline and for many tables of a database.

``replication.CkptReplicationTaskGroup`` has the steps of a run as separate tasks; ``database.CkptDatabaseTaskGroup``
has one task for each group of tables.
"""
