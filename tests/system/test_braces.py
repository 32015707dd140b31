"""Braces, as Bash expands them."""

import subprocess
from pathlib import Path
from shutil import which

import pytest
from braceexpand import braceexpand
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord import DatasetWriter, FileReader
from ffrecord.dataset_writer.sample_sources import shard_names
from ffrecord.errors import ArgumentError
from ffrecord.sources.tar.webdataset import _without_braces
from ffrecord.system.braces import expand_braces, expand_path

BASH = which("bash")
EXPANDED = (
    *("a{000..003}.tar", "{a,b}{1..3}", "x{a}", "x{}y", "{a,b{1..2}}", "{3..1}", "{01..10..4}", "{a..e}", "{-1..01}"),
    *("{,a}", "{a,{b,c}d}", "{001..2}", "{1..03}", "{a{1,2}}", "{5..5}", "{e..a..2}", "{0..3}", "{-0..3}", "{a,b..c}"),
    *("{{1,2},x}", "{00..09..3}", "{a,b{1,2}}", "{8..010}", "plain{}.tar", "{train,val}-{08..11}.tar", "x{1,}"),
)
# Bash expands what is inside of these from 5.3 on.
HALF_RANGES = ("{..{a..b}}", "{1..{a..b}}", "{{a..b}..2}", "{1.5..{1,2}}", "{a{1,2}..b}", "{a..1{2,3}}")
NUMBERS = st.sampled_from(["0", "1", "3", "9", "11", "-2", "03", "010", "-01", "00"])
RANGES = st.builds("{{{}..{}}}".format, NUMBERS, NUMBERS) | st.builds(
    "{{{}..{}..{}}}".format, NUMBERS, NUMBERS, st.sampled_from(["1", "2", "-3", "0", "04"])
)
LETTERS = st.sampled_from(["{a..c}", "{C..A}", "{a..e..2}", "{c..1}", "{1..}", "{..2}", "{1.5..2}", "{a}"])
WORDS = st.sampled_from(["", "a", "b.", "-", "01"])
PATTERNS = st.recursive(
    WORDS | RANGES | LETTERS,
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"{{{','.join(parts)}}}")
        | st.lists(inner, max_size=3).map("".join)
        | inner.filter(lambda text: text not in ("", "{}")).map("{{{}}}".format)
    ),
    max_leaves=5,
)


def by_bash(patterns: list[str]) -> list[list[str]]:
    """What Bash makes of each pattern behind an x, so that it is never empty."""
    lines = "".join(f"printf '%s\\n' x{pattern}\nprintf '\\n'\n" for pattern in patterns)
    ran = subprocess.run([BASH, "--norc", "-f", "-c", lines], check=True, capture_output=True, text=True)
    return [part.split("\n") for part in ran.stdout.removesuffix("\n\n").split("\n\n")]


@pytest.mark.parametrize("pattern", [*EXPANDED, *HALF_RANGES])
def test_known_patterns(pattern):
    found = expand_braces(pattern)
    assert found == list(braceexpand(pattern))
    assert shard_names(pattern) == found and _without_braces(pattern) == found


@pytest.mark.skipif(BASH is None, reason="Bash is not here")
@settings(deadline=None, max_examples=20)
@given(st.lists(PATTERNS, min_size=30, max_size=60))
def test_as_bash_does(patterns):
    patterns += EXPANDED
    for pattern, expected in zip(patterns, by_bash(patterns), strict=True):
        assert expand_braces(f"x{pattern}") == expected, pattern


def test_letters_of_both_cases():
    """In the order of ASCII; of what lies between, Bash itself reads the backslash as a quote."""
    assert expand_braces("{Y..b}") == [*"YZ[\\]^_`ab"] and expand_braces("{b..Y..4}") == ["b", "^", "Z"]


def test_braces_that_are_none():
    assert expand_braces("a{b") == ["a{b"]
    assert expand_braces("a}b{c,d}") == ["a}bc", "a}bd"]
    for bomb in ("{0..99999999999}", "{0..99}" * 4, "{a,b}" * 30, "{{0..999999},b,c}"):
        with pytest.raises(ArgumentError, match="expected at most 1000000"):
            expand_braces(bomb)


def test_a_file_with_braces_in_its_name(tmp_path, monkeypatch):
    """An existing file is meant, also by `from_webdataset`."""
    monkeypatch.chdir(tmp_path)
    assert expand_path("a{1,2}.tar") == ["a1.tar", "a2.tar"]
    assert expand_path("plain.tar") == ["plain.tar"]
    Path("a{1,2}.tar").touch()
    assert expand_path("a{1,2}.tar") == ["a{1,2}.tar"]
    DatasetWriter("out", num_workers=0).from_webdataset("a{1,2}.tar", lambda name: [name.encode()])
    with FileReader("out") as reader:
        assert [bytes(each) for each in reader] == [b"a{1,2}.tar"]
