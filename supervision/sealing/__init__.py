"""Secrets that the database holds, encrypted: keys and texts, the field of a model, and the rows to encrypt again."""
