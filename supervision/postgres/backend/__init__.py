"""A Django database engine: Django's own for PostgreSQL, changed for servers that fail and for failovers."""
