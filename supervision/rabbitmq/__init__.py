"""RabbitMQ's users: what each role declares, may do, and how the users are set up.

May import: operations, dispatch and the rooms below; and the definitions at the top of `supervision`.
Public: roles, declaring, definitions, server.
"""
