"""Accepts orders and turns submissions into runs, also from external AMQP queues.

May import: outbox, governance, deadletters, store and the rooms below; and the definitions at the top of `supervision`.
Public: submission, submitting, consuming, schedules, erased_keys, amqp, amqp_consumer.
"""
