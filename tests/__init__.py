"""Tests, in the shape of the package: unit (pure), integration (real services), system (real Airflow)."""
