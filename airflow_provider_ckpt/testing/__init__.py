"""Conformance suites for connectors: pytest tests that every source, sink and declaration of a connector must pass.

The author of a connector subclasses the suites and implements harnesses for them. This subpackage needs pytest (extra
``testing``); no other subpackage imports it. With the plugin ``airflow_provider_ckpt.testing.plugin``, failed
assertions of the suites show their values.
"""
