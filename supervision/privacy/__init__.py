"""Personal data in the engine's tables: which columns hold it, and how it is erased.

May import: operations and the rooms below.
Public: held, erasing, words.
"""
