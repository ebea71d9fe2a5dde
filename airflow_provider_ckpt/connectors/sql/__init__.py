"""SQL source and sink: tables of any database with transactions, by SQLAlchemy and the database's own driver.

A dialect contains all that is special to one kind of database; ``mysql`` (for MySQL and MariaDB) and ``sqlite`` are
built in.
"""
