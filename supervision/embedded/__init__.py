"""A PostgreSQL server of one's own as a child process, for demos and tests. The extra `embedded` brings its programs.

May import: nothing of the engine. Public: server (EmbeddedPostgres, database_url), binaries (EmbeddedPostgresError).
"""
