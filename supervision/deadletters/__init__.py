"""Messages and submissions that cannot be read: kept byte for byte until an operator decides.

May import: transports, runtime, postgres; and the definitions at the top of `supervision`.
Public: dead_letters, of_orders, bounds, validation, consumer, ending, lone_readings.
"""
