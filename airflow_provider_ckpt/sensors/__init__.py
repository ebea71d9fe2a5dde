"""Airflow sensors: wait until a pipeline has enough to do, has caught up, has passed a position, or needs a person."""
