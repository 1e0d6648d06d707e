"""Django and Celery as most teams write it: state in the ORM, one task per step, the next published on commit."""
