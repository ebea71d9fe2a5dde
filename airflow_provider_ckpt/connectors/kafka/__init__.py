"""Kafka connector: a source that reads a topic up to its last stable offset, and a sink that writes in transactions."""
