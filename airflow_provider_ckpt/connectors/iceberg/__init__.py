"""Write to Apache Iceberg tables: lanes stage data files, and one commit for each wave adds them as a snapshot.

A property of the table stores the number of the newest receipt node (``two_phase/receipts.py``).
"""
