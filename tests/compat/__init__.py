"""Run a part of the tests with the oldest, the newest and other supported versions of Airflow and PySpark."""
