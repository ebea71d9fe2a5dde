"""Declarations of many tables in one file: from the declaration and the source's catalog to one pipeline per table."""
