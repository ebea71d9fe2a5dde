"""Change a source's columns at random while runs are killed, and compare the target with a model of rows."""
