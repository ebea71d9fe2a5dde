"""Conformance suites of sources and sinks, and further tests of each connector against the real system."""
