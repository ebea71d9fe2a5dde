"""Conformance suites of sources and sinks, and each connector against the real thing."""
