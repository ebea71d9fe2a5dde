"""Load the plugin, with which failed assertions of the suites show their values."""

pytest_plugins = ["airflow_provider_ckpt.testing.plugin"]
