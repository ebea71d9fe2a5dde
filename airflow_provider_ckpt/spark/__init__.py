"""Code that runs in Spark: the driver's loop, lanes and the transform. It imports neither Airflow nor ``ledger``."""
