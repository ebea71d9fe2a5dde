"""Part of the tests on the oldest, the newest and other versions of Airflow and PySpark that the package supports."""
