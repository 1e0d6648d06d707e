"""Messages to the outside: committed with the change that they tell of, delivered at least once.

May import: store and the rooms below it; and the definitions at the top of `supervision`.
Public: notifications, incident_mail, channels, channel_texts, subscriptions, deliveries, delivery_worker, address_policy.
"""
