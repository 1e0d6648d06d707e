"""The scheduler: claims due steps and sends them to agents as Celery chains, over partitioned queues.

May import: intake, governance, store and the rooms below; and the definitions at the top of `supervision`.
Public: scheduler, partitions.
"""
