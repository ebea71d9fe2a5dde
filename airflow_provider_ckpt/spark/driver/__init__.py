"""The Spark application that the ``submit`` engine starts, and the processes around it."""
