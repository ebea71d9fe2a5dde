"""Routes of the API; the guard in ``app.py`` covers all of them."""
