"""SQL source and sink: tables of any database with transactions, by SQLAlchemy and the database's own driver.

What differs between databases is in dialects; ``mysql`` (for MySQL and MariaDB) and ``sqlite`` are built in.
"""
