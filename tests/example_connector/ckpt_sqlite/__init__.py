"""Connector of SQLite files for airflow-provider-ckpt."""
