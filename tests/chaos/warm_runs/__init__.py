"""Parts of the soak (``tests/chaos/soak.py``): pipelines, processes that make their runs, strikes, and figures."""
