"""A Django database engine: Django's own for PostgreSQL, and what a server that fails or moves asks for."""
