"""What `manage.py migrate` adds to Django's: locks, indexes that were not finished, and what going back would delete."""
