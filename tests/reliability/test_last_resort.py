"""T5 (guarantees G2, G8): requests that the kernel does not take at once are made again.

Records that direct reads did not bring are read through the page cache in the end, so the bytes are right whatever is
forgotten on the way. Here it is counted that nothing was.
"""

import errno
from pathlib import Path

import builders
import faults
import pytest

CODE = """
import logging, sys
import builders
from ffrecord import FileReader, _aio
from ffrecord.system import _calls
logging.disable()
path, action, value, call = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
indices = range(0, 600, 2)  # too far apart to be read together, and more than are in flight at a time
with FileReader(path, io="direct") as reader:
    wanted = builders.unpack(reader.read_packed(indices))
    if _aio.stats()["made"] == 0:
        raise SystemExit("no AIO here")
    before = _calls.count("pread")
    assert builders.unpack(reader.read_packed(indices)) == wanted
    usual = _calls.count("pread") - before
    _calls.fault("io_submit", call, action, value)
    before = _calls.count("pread")
    assert builders.unpack(reader.read_packed(indices)) == wanted
    assert _calls.fired() == 1, _calls.fired()
    assert _calls.count("pread") - before == usual, (_calls.count("pread") - before, usual)
assert _aio.stats()["stale"] == 0
"""


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize(
    ("action", "value"), [("fail", errno.EAGAIN), ("fail", errno.EINTR), ("short", 1), ("short", 5)]
)
def test_requests_that_the_kernel_does_not_take_at_once(tmp_path: Path, action: str, value: int, call: int) -> None:
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([20_000] * 600))
    try:
        faults.run(CODE, path, action, value, call)
    except AssertionError as error:
        if "no AIO here" in str(error):
            pytest.skip("this host has no Linux AIO")
        raise
