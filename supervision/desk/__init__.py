"""What operators keep about an order beside its history: notes, and who looks after it.

May import: operations and the rooms below; and the definitions at the top of `supervision`.
Public: notes.
"""
