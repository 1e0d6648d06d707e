"""The request log: which requests of API clients changed something or were refused, for the operators' console.

May import: models, conf, runtime, postgres.
Public: middleware (the project's settings name it), recording, entries, tidying.
"""
