"""The API for operators and for owners of webhooks: Django REST framework, from the extra `api`.

May import: insight, operations and the rooms below; and the definitions at the top of `supervision`. No room imports it.
Public: urls (`patterns`, `order_verbs`), base, errors, operator_views, permissions, reference, requests and shapes,
for an application's own views.
"""
