"""JDBC source: a table of any database with a driver, planned by a separate Java process and read by Spark."""
