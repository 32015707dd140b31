"""`Loader` in containers that refuse system calls: the same batches, by whatever way is left."""

import errno
import platform

import children
import pytest
from torch_builders import WORKERS_ANYWHERE

import ffrecord

pytestmark = WORKERS_ANYWHERE

LOADED = """
import sys
import children
from ffrecord.torch import Loader

path, number = sys.argv[1], int(sys.argv[2])
for call in sys.argv[3:]:
    children.refuse(call, number)
for options in ({"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}):
    loader = Loader(path, 16, "random", seed=1, transform=dict, **options)
    found = [int(label) for batch in loader for label in batch["label"]]
    assert sorted(found) == list(range(200)), (options, found[:10])
print("right")
"""
CALLS = (
    "memfd_create",
    "fallocate",
    "prlimit64",
    "sched_getaffinity",
    "pidfd_open",
    "preadv2",
    "flock",
    "prctl",
)  # the last one installs the filters


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "number", [errno.EPERM, *(pytest.param(each, marks=pytest.mark.long) for each in (errno.ENOSYS, errno.EINVAL))]
)
def test_the_same_batches(tmp_path, number):
    if platform.machine() not in children.SYSCALLS:
        pytest.skip(f"the numbers of system calls of {platform.machine()} are not known here")
    if children.in_child(lambda: children.refuse("sysinfo", errno.EPERM) is None):
        pytest.skip("this machine allows no filters of system calls")
    samples = [{"label": i, "text": "x" * (i % 7)} for i in range(200)]
    ffrecord.DatasetWriter(tmp_path / "set", num_workers=0, progress=False).from_indexed_dataset(samples)
    assert children.run(LOADED, tmp_path / "set", number, *CALLS, timeout=250) == "right\n"
