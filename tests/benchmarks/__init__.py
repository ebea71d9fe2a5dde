"""Benchmarks that compare this package with the tools that a user would otherwise use."""
