"""PostgreSQL source and sink: rows by binary COPY through ADBC, each batch and its receipt in one transaction."""
