"""Apache Iceberg as sink: lanes stage data files, and one snapshot a wave adds them.

Table properties refer to the receipts.
"""
