"""The durable ledger: what was planned, sent, receipted and given up, in PostgreSQL or SQLite.

Its one entry is :class:`airflow_provider_ckpt.ledger.ledger.Ledger`; no Airflow and no Spark in here.
"""
