"""Protects remote services: circuit breaker, rate limiter, slots, routing, probes and cached answers.

May import: store and the rooms below it; and the definitions at the top of `supervision`.
Public: circuit_breaker, rate_limiter, resources, admission, outages, probes, response_cache.
"""
