"""PostgreSQL connector: it moves rows by binary COPY through ADBC, and commits each batch together with its receipt."""
