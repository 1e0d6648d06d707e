"""Signals: facts from outside that a run waits for. The steps that only wait, and the verb that sends a signal.

May import: store and the rooms below; and the definitions at the top of `supervision`. `waits` needs no Django.
Public: waits, sending, untaken.
"""
