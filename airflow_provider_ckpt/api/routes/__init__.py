"""Routes of the API; every one of them is behind the guard of ``app.py``."""
