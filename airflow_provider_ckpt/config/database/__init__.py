"""Declaration of many tables in one file: from its document and the source's catalog to one pipeline per table."""
