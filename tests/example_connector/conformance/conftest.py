"""Load the pytest plugin with which failed assertions of the conformance suites show their values."""

pytest_plugins = ["airflow_provider_ckpt.testing.plugin"]
