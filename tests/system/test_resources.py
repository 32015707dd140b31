"""`system.resources`: available memory, and the limits of descriptors."""

import os
import resource
from pathlib import Path

import children
import pytest
import situations

from ffrecord.system import resources


def test_memory_of_this_machine():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < resources.available_memory() <= total


@pytest.mark.parametrize(
    ("soft", "wanted"), [(3, 1), (4, 1), (7, 1), (8, 2), (1024, 256), (4096, 1024), (20_000, 1024)]
)
def test_descriptors(soft, wanted):
    code = """
import resource, sys
from ffrecord.system.resources import descriptors
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), hard))
print(descriptors())
"""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < soft:
        pytest.skip(f"the hard limit of descriptors is below {soft}")
    assert int(children.run(code, soft)) == wanted


def test_descriptors_without_a_limit(monkeypatch):
    monkeypatch.setattr(resources.resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert resources.descriptors() == 1024


def test_a_limit_of_a_control_group():
    code = """
import sys
from ffrecord.system.resources import available_memory
print(available_memory(), flush=True)
sys.stdin.readline()
print(available_memory(), flush=True)
sys.stdin.readline()
print(available_memory())
"""
    with situations.memory_group() as group, children.started(code) as child:
        before = int(child.stdout.readline())
        group.join(child.pid)
        group.limit(50 << 20)
        child.stdin.write("\n")
        child.stdin.flush()
        assert 40 << 20 < int(child.stdout.readline()) <= 50 << 20  # less what it uses
        group.limit(None)
        assert int(child.communicate("\n", timeout=20)[0]) == pytest.approx(before, rel=0.3)


# What other machines say: their files in a directory

GROUPS_2 = {
    "memory.max": "max",
    "a/memory.max": "3000",
    "a/b/memory.max": "max",
    "c/memory.max": "5000",
    "broken/memory.max": "-17 what",
    # Of 1,000 bytes in use, 400 hold file pages, which make room for others.
    "used/memory.max": "5000",
    "used/memory.current": "1000",
    "used/memory.stat": "anon 600\nfile 400\nfile_dirty 3",
    # Shared memory is counted among them, and makes no room.
    "shared/memory.max": "5000",
    "shared/memory.current": "1000",
    "shared/memory.stat": "anon 600\nfile 400\nshmem 150",
    "full/memory.max": "500",
    "full/memory.current": "1000",
    "slowed/memory.max": "9000",
    "slowed/memory.high": "7000",
}
NAMES_1 = {
    "memory.max": "memory.limit_in_bytes",
    "memory.current": "memory.usage_in_bytes",
    "memory.stat": "memory.stat",
}


def in_version_1(path: str) -> str:
    group, name = path.rsplit("/", 1) if "/" in path else ("", path)
    return f"memory/{group}/{NAMES_1.get(name, name)}"


GROUPS_1 = {
    in_version_1(path): text.replace("file 400", "total_cache 400").replace("shmem", "total_shmem")
    for path, text in GROUPS_2.items()
}
MEMBERSHIPS = {
    "0::/a/b": 3000,
    "0::/a": 3000,
    "0::/c": 5000,
    "0::/": resources.UNLIMITED,
    "0::/gone/with/all/above": resources.UNLIMITED,
    "0::/../../elsewhere": resources.UNLIMITED,
    "0::/broken": resources.UNLIMITED,
    "0::/a:odd:name": 3000,
    "0::/used": 4400,
    "0::/shared": 4250,
    "4:memory:/shared": 4250,
    "0::/full": 0,
    "0::/slowed": 7000,
    "4:memory:/used": 4400,
    "4:memory:/full": 0,
    "4:memory:/slowed": 9000,
    "4:memory:/a/b": 3000,
    "7:cpu,memory,pids:/c": 5000,
    "4:memory:/": resources.UNLIMITED,
    "4:cpuset:/a": resources.UNLIMITED,
    "9:name=systemd:/a": resources.UNLIMITED,
    "9:name=systemd:/a\n4:memory:/c\n0::/a": 3000,
    "": resources.UNLIMITED,
}


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """A directory that the module takes for the root of all it reads."""
    for path, text in {**GROUPS_2, **GROUPS_1}.items():
        file = tmp_path / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    (tmp_path / "sys/fs/cgroup/a:odd:name").mkdir()
    (tmp_path / "sys/fs/cgroup/a:odd:name/memory.max").write_text("3000\n")
    (tmp_path / "proc/self").mkdir(parents=True)

    def elsewhere(path: str = "") -> Path:
        return tmp_path / str(path).lstrip("/")

    monkeypatch.setattr(resources, "open", lambda path: elsewhere(path).open(), raising=False)
    return tmp_path


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_groups(machine, membership):
    (machine / "proc/self/cgroup").write_text(membership + "\n" if membership else "")
    (machine / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    1000000000000000 kB\n")
    assert min(resources._group_limits()) == MEMBERSHIPS[membership]
    assert resources.available_memory() == min(MEMBERSHIPS[membership], 10**15 << 10)


def test_less_is_free_than_the_group_may_have(machine):
    (machine / "proc/self/cgroup").write_text("0::/a\n")
    (machine / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  2 kB\n")
    assert resources.available_memory() == 2048


@pytest.mark.parametrize("text", [None, "", "MemTotal: 9 kB\n", "MemAvailable:\n", "MemAvailable: many kB\n"])
def test_a_machine_that_says_nothing(machine, text):
    """Half of what there is in all, and no group."""
    if text is not None:
        (machine / "proc/meminfo").write_text(text)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert resources.available_memory() == total // 2
