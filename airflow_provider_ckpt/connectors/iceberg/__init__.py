"""Apache Iceberg as sink: lanes stage data files, and one snapshot a wave adds them.

A table property refers to the newest receipts.
"""
