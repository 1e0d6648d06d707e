"""The states of a parcel, in the order in which they follow each other.

`deleted` comes before `picked_up`, so that a parcel that leaves although it was deleted is seen. A parcel's state never goes back.
"""

from __future__ import annotations

BOOKED, DELETED, PICKED_UP, DELIVERED, RETURNED = "booked", "deleted", "picked_up", "delivered", "returned"
IN_ORDER = (BOOKED, DELETED, PICKED_UP, DELIVERED, RETURNED)
TOLD = (PICKED_UP, DELIVERED, RETURNED)  # what the carrier's webhooks tell
FINAL = (DELIVERED, RETURNED)

# What an operator is told about a parcel.
CAME_BACK, NOT_STOPPED, SILENT, NOT_OURS = "returned", "not_stopped", "silent", "unknown_key"
TROUBLES = (CAME_BACK, NOT_STOPPED, SILENT, NOT_OURS)
