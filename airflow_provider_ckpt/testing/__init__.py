"""Conformance suites for connectors: what every source and sink must do, as tests for pytest.

A connector's author subclasses the suites and gives them harnesses. The package needs pytest (extra ``testing``);
nothing else imports it. The plugin ``airflow_provider_ckpt.testing.plugin`` lets failed assertions of the suites show
their values.
"""
