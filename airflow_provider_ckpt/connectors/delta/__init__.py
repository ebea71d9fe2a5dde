"""Delta Lake as sink: lanes stage data files, and one commit a wave adds them and their receipts."""
