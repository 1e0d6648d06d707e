"""The Django admin of the engine's tables. Importing this package registers all of them.

May import: console and the rooms below; and the definitions at the top of `supervision`.
Public: tables.
"""

from supervision.admin import tables

__all__ = ["tables"]
