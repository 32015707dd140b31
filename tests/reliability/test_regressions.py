"""Cases (all guarantees): defects of the original, U1 to U11g, each with tests that it would fail.

Most are where their subject is; what is nowhere else is here.
"""

import re
import signal
import time
from functools import cache
from pathlib import Path

import builders
import children
import pytest
from builders import COPYING_MODES

from ffrecord import FileReader

TESTS = Path(__file__).parents[1]
# What the original did → tests that would fail on it.
ROWS = {
    "U1, a writer killed before close leaves a file that opens as empty": (
        "test_killed_in_the_middle",
        "test_row_13_unfinished_files",
        "test_row_13_the_writer_publishes_atomically",
    ),
    "U2, without a header checksum a damaged offset is read": ("test_row_21_old_files", "test_refused_in_bounds"),
    "U3, an impossible number of samples is allocated": ("test_row_20_impossible_counts", "test_refused_in_bounds"),
    "U4, offsets that decrease are sizes of 2**64": ("test_row_20_offsets_out_of_order", "test_refused_in_bounds"),
    "U5, indices below 0 read outside the tables": (
        "test_row_03_negative_indices_count_from_the_end",
        "test_row_04_index_past_the_end",
        "test_all_indices_are_checked_before_anything_is_read",
    ),
    "U6, an exception inside with ends the process": (
        "test_an_exception_inside_with",
        "test_too_few_inside_with",
        "test_row_12_a_writer_closed_short",
    ),
    "U7, a full disk is found when nobody looks": ("test_disk_full", "test_full_disk", "test_file_size_limit"),
    "U8, fork after a batch, and the 17th reader of a host": (
        "test_row_10_fork_after_a_batch",
        "test_row_11_many_readers_take_few_slots",
        "test_twenty_readers_at_once",
    ),
    "U9, a signal fails a batch, whose events count for the next": ("test_signals_during_batches",),
    "U10, failing opens keep descriptors, failing batches buffers": (
        "test_failing_opens",
        "test_row_18_failing_batches_leak_nothing",
        "test_an_error_does_not_keep_its_batch",
    ),
    "U11a, tables of a reader that is gone are freed memory": ("test_row_22_tables_outlive_the_reader",),
    "U11b, an index twice in a concatenation is the integer 0": (
        "test_concat_reads_each_member_once_and_keeps_repeats",
    ),
    "U11c, a dump with a failing worker returns": ("test_a_failing_worker_fails_the_dump",),
    "U11d, a dump mixes its shards with older ones": ("test_older_shards_are_not_mixed_in",),
    "U11e, arrays lose bytes": ("test_row_16_all_bytes_in_c_order",),
    "U11f, other threads stand still, and descriptor 0 is a failure": (
        "test_other_threads_run_during_a_read",
        "test_releases_the_gil",
        "test_descriptor_zero_is_a_descriptor",
    ),
    "U11g, the checksum of an empty sample is not compared": ("test_row_07_empty_samples",),
}


@cache
def defined() -> frozenset[str]:
    """Names of all test functions, wherever they are."""
    files = (path.read_text() for path in TESTS.rglob("test_*.py"))
    return frozenset(name for text in files for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE))


@pytest.mark.parametrize("row", ROWS)
def test_each_has_its_tests(row):
    assert [name for name in ROWS[row] if name not in defined()] == []


@pytest.mark.parametrize("io", COPYING_MODES)
def test_signals_during_batches(tmp_path, io):
    """U9: a handler that runs in the middle of every batch, and restarts nothing."""
    samples = builders.records([i % 7 * 9000 for i in range(600)])
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    handled, batches = [0], 0
    with children.alarms(lambda *_: handled.__setitem__(0, handled[0] + 1)), FileReader(path, io=io) as reader:
        signal.siginterrupt(signal.SIGALRM, True)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        ends = time.monotonic() + 60
        while (handled[0] < 100 or batches < 10) and time.monotonic() < ends:
            assert builders.read_all(reader) == samples
            batches += 1
    assert handled[0] >= 100
