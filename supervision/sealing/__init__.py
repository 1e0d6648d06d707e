"""Secrets that the database holds, encrypted: keys and texts, the field of a model, and the rows to encrypt again.

May import: runtime and the rooms below; and the definitions at the top of `supervision`.
Public: texts, fields, rows.
"""
