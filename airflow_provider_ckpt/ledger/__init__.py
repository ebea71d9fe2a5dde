"""Durable ledger in PostgreSQL or SQLite: batches that were planned, attempted, receipted or given up.

Its only entry point is :class:`airflow_provider_ckpt.ledger.ledger.Ledger`. The package imports neither Airflow nor
Spark.
"""
