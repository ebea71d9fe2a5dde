"""Tests of the declaration of many tables in one file."""
