#!/usr/bin/env python3
"""Django's command line for this project."""

import os
import sys


def main() -> None:
    """Run one command. An error in the settings ends in one line, not in a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
    if sys.argv[1:2] == ["demo"]:
        os.environ.setdefault("DEBUG", "1")  # the demo uses the built-in demo values, which need DEBUG
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("Django is not installed for this Python: use `./run manage ...`, or activate .venv first.")
    try:
        if "SAS_PARENT" in os.environ:  # the demo, on a system whose kernel would not end this process with it
            from sasproject import orphans

            orphans.watch()
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as problem:
        sys.exit(f"manage.py: {problem}")


if __name__ == "__main__":
    main()
