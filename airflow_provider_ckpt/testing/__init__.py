"""Conformance suites for connectors: pytest tests of everything that a source, a sink and a declaration must do.

A connector's author subclasses the suites and gives them harnesses. The package needs pytest (extra ``testing``); no
other package imports it. With the plugin ``airflow_provider_ckpt.testing.plugin``, failed assertions of the suites show
their values.
"""
