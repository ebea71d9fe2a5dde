"""JDBC: a table of any database that has a driver, planned by a Java process beside this one and read by Spark."""
