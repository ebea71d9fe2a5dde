"""Kafka: a topic as a source, read up to its last stable offset, and as a sink, written in transactions."""
