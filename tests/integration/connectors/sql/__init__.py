"""Tests of the sql source and sink, against MariaDB and SQLite."""
