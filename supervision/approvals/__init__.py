"""Verbs that move or forgo more money than APPROVAL_ABOVE wait here until another operator approves them.

May import: outbox, incidents, postgres, models; and the definitions at the top of `supervision`.
Public: actors, stakes, gate, deciding, waiting.
"""
