"""What a Celery worker does when it starts, lives and stops: queues, heartbeats, the check that it consumes.

May import: execution, recovery, journal and the rooms below; and the definitions at the top of `supervision`.
Public: lifecycle, heartbeats, consumption_check, beat, records.
"""
