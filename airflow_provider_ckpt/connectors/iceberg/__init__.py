"""Apache Iceberg as sink: lanes stage data files, one snapshot a wave carries them, and properties their receipts."""
