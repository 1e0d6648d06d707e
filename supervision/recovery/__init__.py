"""The supervisor: finds expired steps, decides about failures, undoes orders, keeps the leader lease.

May import: dispatch, intake, governance, store and the rooms below; and the definitions at the top of `supervision`.
Public: supervisor, upkeep, failures, decisions, attribution, leader_lease, held_time.
"""
