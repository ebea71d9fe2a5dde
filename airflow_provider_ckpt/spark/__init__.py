"""Code that runs in Spark: the driver's loop, the lanes and the transform.

It imports neither Airflow nor the package ``ledger``.
"""
