"""Steps that start other runs: a child run, or one for each item of a list. The parent waits for their ends and undoes them.

May import: operations, store and the rooms below; and the definitions at the top of `supervision`. `steps` needs no Django.
Public: steps, work.
"""
