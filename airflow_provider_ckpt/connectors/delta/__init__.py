"""Write to Delta Lake tables: lanes stage data files, and one commit for each wave adds them with their receipts."""
