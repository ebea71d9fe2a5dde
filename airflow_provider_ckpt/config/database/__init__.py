"""Declarations of many tables in one file. With the source's catalog, each is expanded to one pipeline per table."""
