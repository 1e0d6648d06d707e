"""Simulators of the payment service, the carrier and the mail server: one process with one durable ledger.

For demos and tests only. The package does not use the shop, the engine or a database. Clients reach it over HTTP and
SMTP like the real services. Control requests inject faults (`faults`). The `ledger` records every call and its effect.
"""
