"""Wait in Airflow sensors for a pipeline's lag, its checkpoint, its dead letters or its held batches."""
