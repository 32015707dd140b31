"""Every call that reads, failing or stopping short, at every occurrence: the exact bytes, or an error that says why."""

import errno
import json
from pathlib import Path

import builders
import children
import pytest

SITES = {"pread": 0, "preadv": 1, "preadv2": 2, "fstat": 3, "io_setup": 4, "io_submit": 5, "io_getevents": 6}
FAIL, SHORT, REVERSE, EVENT_FAILS, EVENT_SHORT, EVENT_STALE = range(6)
USED = {
    "pread": ("preadv", "pread", "fstat"),
    "auto": ("preadv2", "pread", "fstat"),
    "direct": ("io_setup", "io_submit", "io_getevents", "pread", "fstat"),
    "mmap": ("fstat",),
}
# With what else, always, so that the plain pread comes to be called.
BESIDE = {
    "pread": (SITES["preadv"], SHORT, 512),
    "auto": (SITES["preadv2"], FAIL, errno.EAGAIN),
    "direct": (SITES["io_getevents"], EVENT_FAILS, errno.EIO),
}
HARD = (errno.EIO, errno.ENOMEM, errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ESTALE)
TRANSIENT = {
    "pread": (errno.EINTR,),
    "preadv": (errno.EINTR,),
    "preadv2": (errno.EINTR, errno.EAGAIN),
    "io_setup": (errno.EAGAIN,),
    "io_submit": (errno.EINTR, errno.EAGAIN),
    "io_getevents": (errno.EINTR, errno.EAGAIN),
}
SIZES = (1, 511, 512, 4095)
EVENT_ACTIONS = [
    (REVERSE, 0),
    *((EVENT_FAILS, number) for number in (*HARD, errno.EAGAIN, errno.EINTR)),
    *((EVENT_SHORT, size) for size in (0, *SIZES)),
]


def actions(site: str, *, for_good: bool) -> list[tuple[int, int]]:
    """What is made of calls at a site: every errno, and short answers where there are any."""
    found = [(FAIL, number) for number in HARD]
    if site not in ("fstat", "io_setup"):
        # One byte at a time for good would take a million calls.
        found += [(SHORT, size) for size in SIZES if size > 1 or not for_good]
    return found if for_good else found + [(FAIL, number) for number in TRANSIENT.get(site, ())]


CHILD = """
import ctypes, json, logging, sys
import builders
from ffrecord import FFRecordError, FileReader, _aio

logging.disable()  # of the line about refused AIO; test_fork.py looks for it
faults = ctypes.CDLL(None)
path, io, schedule = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
site, fresh, beside, in_sequence = json.loads(sys.argv[4])
with FileReader(path, io="pread") as reader:
    wanted = builders.read_all(reader)
indices = [*range(reader.n)] if in_sequence else [*range(reader.n), 5, 3, 3, reader.n - 1]

def read(reader):
    if in_sequence:
        return [sample.tobytes() for sample in reader]
    return builders.unpack(reader.read_packed(indices))

def attempt(reader, call, action, value, for_good):
    '''[fired, outcome]: "bytes", or the errno of the error.'''
    if fresh:
        _aio.release()
    faults.fault_set(0, site, call, for_good, action, value)
    if beside:
        faults.fault_set(1, beside[0], 1, 1, *beside[1:])
    try:
        got = read(reader)
    except OSError as error:
        outcome = error.errno
        assert isinstance(error, RuntimeError) and path in str(error) and str(error).count("Sample ") == 1, error
    else:
        outcome = "bytes"
        assert got == [wanted[i] for i in indices], "wrong bytes"
    fired = faults.fault_fired(0)
    for which in (0, 1):
        faults.fault_set(which, -1, 0, 0, 0, 0)
    assert read(reader) == [wanted[i] for i in indices], "wrong bytes afterwards"
    return [fired, outcome]

results = []
for action, value, for_good in schedule:
    outcomes = []
    for call in range(1, 200):
        with FileReader(path, io=io) as reader:
            fired, outcome = attempt(reader, call, action, value, for_good)
        if not fired:
            break
        outcomes.append(outcome)
    results.append(outcomes)
stale = _aio.stats()["stale"]
assert (stale > 0) == any(action == 5 for action, *_ in schedule), stale
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def library(preloadable) -> Path:
    return preloadable("faults.c")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    """Neighbours, gaps, an empty one, one of several direct pieces."""
    samples = builders.records([3000, 0, 5000, 100, 600_000, 70_000, 1, 4096])
    return builders.write_samples(tmp_path_factory.mktemp("data") / "a.ffr", samples)


def sweep(
    library: Path,
    data: str,
    io: str,
    site: str,
    wanted: list[tuple[int, int]],
    *,
    for_good: bool,
    in_sequence: bool = False,
) -> list[list]:
    """Outcomes of each action at the first, second … call of a batch, or of an iteration."""
    schedule = json.dumps([(*action, int(for_good)) for action in wanted])
    where = json.dumps((SITES[site], site == "io_setup", BESIDE[io] if site == "pread" else None, in_sequence))
    return json.loads(children.run(CHILD, data, io, schedule, where, LD_PRELOAD=str(library)))


@pytest.mark.parametrize(("io", "site"), [(io, site) for io, sites in USED.items() for site in sites])
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_every_call_at_every_occurrence(library, data, io, site, for_good):
    """pread is the last resort and fstat has no other: only theirs are errors. All else is read in another way."""
    wanted = actions(site, for_good=for_good)
    for action, outcomes in zip(wanted, sweep(library, data, io, site, wanted, for_good=for_good), strict=True):
        assert outcomes, f"{action}: never called"
        final = site in ("pread", "fstat") and action[0] == FAIL and action[1] in HARD
        assert set(outcomes) <= {"bytes", action[1]} if final else set(outcomes) <= {"bytes"}, action


@pytest.mark.parametrize("site", ["preadv", "pread", "fstat"])
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_every_call_of_an_iteration(library, data, site, for_good):
    """Plain reads of a thread, whatever a random batch would use."""
    wanted = actions(site, for_good=for_good)
    found = sweep(
        library, data, "auto" if site != "pread" else "pread", site, wanted, for_good=for_good, in_sequence=True
    )
    for action, outcomes in zip(wanted, found, strict=True):
        assert outcomes, f"{action}: never called"
        final = site in ("pread", "fstat") and action[0] == FAIL and action[1] in HARD
        assert set(outcomes) <= {"bytes", action[1]} if final else set(outcomes) <= {"bytes"}, action


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_events_in_any_state_and_order(library, data, for_good):
    """A short or failed piece is read again in the ordinary way, which finds the exact error: here none.

    One EINTR or EAGAIN failed the whole batch of the original, and its late events were taken for the next one's.
    """
    found = sweep(library, data, "direct", "io_getevents", EVENT_ACTIONS, for_good=for_good)
    for action, outcomes in zip(EVENT_ACTIONS, found, strict=True):
        assert outcomes, f"{action}: never called"
        assert set(outcomes) == {"bytes"}, action


def test_events_of_another_batch_are_dropped(library, data):
    """There are none, since every batch collects its own; should there be one, it is counted and harms nobody."""
    action = (EVENT_STALE, errno.EIO)
    for for_good in (False, True):
        (outcomes,) = sweep(library, data, "direct", "io_getevents", [action], for_good=for_good)
        assert set(outcomes) == {"bytes"}


@pytest.mark.parametrize("indices", [[0, 2, 5], [4], [4, 4, 4, 7], [7, 4, 3, 3, 5, 4, 0, 1, 6, 2, 5]])
def test_direct_reads_leave_nothing_to_the_last_resort(library, data, indices):
    """Every byte of a good batch comes by AIO: pread would mend a plan with holes, and hide it."""
    code = """
import ctypes, json, sys
import builders
from ffrecord import FileReader
faults, indices = ctypes.CDLL(None), json.loads(sys.argv[2])
with FileReader(sys.argv[1], io="direct") as reader:
    faults.fault_set(0, 0, 1, 1, 0, 5)
    got = builders.unpack(reader.read_packed(indices))
    print(faults.fault_fired(0))
faults.fault_set(0, -1, 0, 0, 0, 0)
with FileReader(sys.argv[1], io="pread") as reader:
    assert builders.unpack(reader.read_packed(indices)) == got
"""
    assert children.run(code, data, json.dumps(indices), LD_PRELOAD=str(library)) == "0\n"


def test_errors_of_opening_name_the_file(library, tmp_path):
    """A device that fails under prefix, first offset, extension block or its reserve."""
    path = builders.write(tmp_path / "a.ffr", builders.ffr_twin.build_extended([b"x"], b"\x80", 20))
    code = """
import ctypes, errno, sys
from ffrecord import FileReader
faults, fired = ctypes.CDLL(None), 0
for call in range(1, 20):
    for site in (0, 3):
        faults.fault_set(0, site, call, 0, 0, errno.EIO)
        try:
            FileReader(sys.argv[1]).close()
        except OSError as error:
            assert error.errno == errno.EIO and sys.argv[1] in str(error), error
        fired += faults.fault_fired(0)
        faults.fault_set(0, -1, 0, 0, 0, 0)
print(fired)
"""
    assert int(children.run(code, path, LD_PRELOAD=str(library))) >= 5
