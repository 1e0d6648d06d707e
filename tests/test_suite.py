"""The suite is divided by lists in `tests/plugin.py`: they name what is there, and what they say holds for the collected tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import plugin

ROOT = Path(__file__).resolve().parent.parent


def test_the_lists_name_files_and_folders_that_are_there():
    named = [*plugin.WHOLE_SHOPS, *plugin.LONG, *plugin.SLOW, *plugin.WITH, *plugin.WITH.values()]

    assert [path for path in named if not (ROOT / path).exists()] == []
    assert [path for path in plugin.WHOLE_SHOPS if not path.startswith(plugin.SLOW)] == []


def test_what_is_named_slow_has_the_mark_and_nothing_else(request: pytest.FixtureRequest):
    marked = {item.nodeid for item in request.session.items if item.get_closest_marker("slow")}

    assert marked == {item.nodeid for item in request.session.items if item.nodeid.startswith(plugin.SLOW)}
