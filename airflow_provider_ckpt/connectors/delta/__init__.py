"""Delta Lake as sink: lanes stage data files, one commit a wave carries them and their receipts."""
