"""Personal data in the engine's tables: which columns hold it, and how it is erased.

May import: models, operations, postgres, runtime.
Public: declared, erasing, words.
"""
