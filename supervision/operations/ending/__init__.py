"""The end of a run and what follows it: the verb that ends a run without undoing what it did, and the way into the archive and back.

May import: operations, approvals, store and the rooms below; and the definitions at the top of `supervision`.
Public: abandoning, nightly, unarchiving.
"""
