"""Airflow hooks: ``CkptHook`` for the ledger, and the launcher that runs Spark through the apache-spark provider."""
