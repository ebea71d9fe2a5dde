"""Parts of the soak test (``tests/chaos/soak.py``): pipelines, processes that run them, faults, and measurements."""
