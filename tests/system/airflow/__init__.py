"""Tests with one real Airflow: PostgreSQL metadata, scheduler, local executor, triggerer, API server with users."""
