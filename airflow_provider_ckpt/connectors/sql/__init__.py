"""SQL connector: reads and writes tables of any database with transactions, through SQLAlchemy and a driver.

A dialect contains the code that is specific to one kind of database; ``mysql`` (for MySQL and MariaDB) and ``sqlite``
are built in.
"""
