"""Durable ledger in PostgreSQL or SQLite: pipelines with their batches, attempts, receipts, checkpoints and audit log.

Its only entry point is :class:`airflow_provider_ckpt.ledger.ledger.Ledger`. The package imports neither Airflow nor
Spark.
"""
