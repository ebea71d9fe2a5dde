"""Airflow triggers: wait in the triggerer for a retry round, for a condition on a pipeline, or for new records."""
