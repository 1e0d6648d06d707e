"""Second factors of the accounts of operators: who is asked, codes and passkeys, entering them again, OpenID Connect.

May import: `orders.identity`, `orders.services`, `orders.api.throttling`, the engine's errors and its gate. django-allauth checks
codes and passkeys; no page of its own is offered.
Public: proofs, urls, console_admin; settings name `middleware.SecondFactor`, `library.Factors` and `openid.Console`.
"""
