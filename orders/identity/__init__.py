"""Who may sign in, and for how long: limits of wrong passwords, known browsers, hashing one at a time, operators' sessions.

May import: `orders.services`, `orders.accounts.signing_in`, `orders.api.throttling`, `orders.responses`.
Public: forms, guest_orders, middleware, pages; settings name `backend.Guard`, `hashing.OneAtATime` and `middleware.Identity`.
"""
