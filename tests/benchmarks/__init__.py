"""Measurements against what a person would use instead."""
