"""Airflow triggers: wait in the triggerer for a retry round, for a condition, or for work."""
