"""Delta Lake as sink: lanes stage data files, and one commit for each wave adds them and their receipts."""
