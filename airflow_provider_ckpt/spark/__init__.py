"""What runs in Spark: the driver's loop, the lanes, the transform. Knows neither Airflow nor the ledger."""
