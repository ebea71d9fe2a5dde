"""Write to Apache Iceberg tables: lanes stage data files, and one commit for each wave adds them as a snapshot.

The numbers of the newest receipts are stored in properties of the table.
"""
