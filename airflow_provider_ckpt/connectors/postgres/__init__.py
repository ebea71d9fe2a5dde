"""PostgreSQL as source and sink: binary COPY through ADBC, a receipt in each batch's own transaction."""
