"""docs/fields.md is executed as written."""

import doctest
from pathlib import Path

import pytest

from ffrecord.fields import field

PAGE = Path(__file__).parents[2] / "docs" / "fields.md"


def test_page() -> None:
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    try:
        done = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    finally:
        field.KINDS.pop("example.edges", None)
    assert done.attempted > 15 and not done.failed


def test_every_field_is_listed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for cls in field.KINDS.values():
        if cls.__module__.startswith("ffrecord."):
            assert f"`{cls.__name__}(" in page, cls.__name__
