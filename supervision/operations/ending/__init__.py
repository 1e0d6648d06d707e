"""The verb that ends a run without undoing what it did.

May import: operations, approvals, store and the rooms below; and the definitions at the top of `supervision`.
Public: abandoning.
"""
