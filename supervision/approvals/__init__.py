"""Verbs that move or forgo more money than APPROVAL_ABOVE wait here until another operator approves them.

May import: outbox and the rooms below; and the definitions at the top of `supervision`.
Public: actors, rights, stakes, gate, deciding, waiting.
"""
