"""Random changes of a source's columns while runs are killed; the target must equal a model of row and version."""
