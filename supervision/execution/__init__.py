"""Runs the steps of a cohort in an agents process, hands results on, picks up new orders while idle.

May import: recovery, dispatch, ledger, governance, store and the rooms below; and the definitions at the top of `supervision`.
Public: runner, agents_process, local_pickup, handback, task_agent.
"""
