"""Airflow sensors: wait for a pipeline's lag, its checkpoint, its dead letters or its held batches."""
