"""Tests of the package: ``unit`` (without services), ``integration`` (real services), ``system`` (real Airflow)."""
