"""The environment of a measurement: machine, versions, commit. Host names and paths are not recorded."""

import importlib.metadata
import os
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# CPU features that choose a kernel of CRC-32 or of memcpy.
FLAGS = {"sse4_1", "pclmulqdq", "vpclmulqdq", "avx2", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl"}
FLAGS |= {"erms", "fsrm", "crc32", "pmull", "asimd", "sve"}


@cache
def cpuinfo() -> dict[str, str]:
    """Return the first processor of /proc/cpuinfo; names in lower case."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def cpu_model() -> str:
    """Return a name such as "AMD EPYC (family 25, model 17)", because the name in virtual machines is too vague."""
    info = cpuinfo()
    name = info.get("model name") or f"{platform.machine()} part {info.get('cpu part', 'unknown')}"
    return f"{name} (family {info['cpu family']}, model {info['model']})" if "cpu family" in info else name


def slug() -> str:
    """Return `cpu_model` as part of a file name."""
    plain = re.sub(r"\((R|TM)\)|\bCPU\b|@.*?GHz|\b(family|model)\b|\bProcessor\b|\d+-Core", " ", cpu_model())
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def caches() -> dict[str, str]:
    """Return level and size of the data caches that one CPU sees."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = size
    return found


@cache
def machine() -> dict[str, Any]:
    """Return the CPU, its relevant features, and the operating system."""
    info = cpuinfo()
    flags = (info.get("flags") or info.get("features", "")).split()
    return {
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "virtual": "hypervisor" in flags,
        "flags": sorted(FLAGS.intersection(flags)),
        "caches": caches(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": f"{platform.system()} {platform.release()}",
    }


def gpus() -> list[str]:
    """Return the models of the GPUs of NVIDIA, as their driver names them."""
    found = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [re.sub(r"(?s).*?Model:\s*(.*?)\n.*", r"\1", path.read_text()) for path in found]


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of the named distributions that are installed."""
    found = {"python": platform.python_version()}
    for package in ("numpy", "cython", *packages):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def libraries(*stems: str) -> dict[str, str]:
    """Return file names, which contain the version, of the loaded shared libraries with these beginnings."""
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    names = sorted(os.path.basename(path) for path in mapped)
    return {stem: name for stem in stems for name in names if name.startswith(f"{stem}.so")}


def filesystem(path: os.PathLike[str] | str) -> str:
    """Return the type of the file system of `path`, such as "ext4"."""
    real = os.path.realpath(path)
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    inside = [(len(where), kind) for _, where, kind, *_ in mounts if f"{real}/".startswith(f"{where.rstrip('/')}/")]
    return max(inside, default=(0, "unknown"))[1]  # no mount is known inside another system's root directory


def read_ahead() -> dict[str, int]:
    """Return the kernel's read-ahead of each disk, in KiB: it decides the cost of a cold page fault."""
    disks = [disk for disk in Path("/sys/block").glob("*") if int((disk / "size").read_text())]
    return {disk.name: int((disk / "queue" / "read_ahead_kb").read_text()) for disk in sorted(disks)}


def git(*arguments: str) -> str | None:
    """Return the output of a git command; None outside a repository."""
    try:
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@cache
def commit() -> dict[str, Any]:
    """Return the measured commit, and whether tracked files differ from it."""
    changes = git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": git("rev-parse", "--short=10", "HEAD") or "unknown",
        "dirty": None if changes is None else bool(changes),
    }
