"""Run README's commands where nothing was set up: `python3 run.py machines [NAME ...]`.

A machine is a bare Debian system, made by debootstrap in out/machines with nothing but what README's `apt install` line
names, or a Python of this computer. Each gets a clone of the last commit, so changes that are not committed are not
tried. The commands run as written, one machine after the other, and their times go to the table in docs/machines.md.

Debian systems need root, debootstrap and unshare. What this computer lacks is left out, and said to be.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "machines"
PAGE = ROOT / "docs" / "machines.md"
RESULTS = ROOT / "docs" / "machines.jsonl"  # every result; the page has the newest of each machine
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
FREE_THREADED = ("3.14t",)  # without a GIL; no Debian system has one
INSIDE = "root/ffrecord"  # the clone, in a Debian system
BUSY = 1.5  # processes that wait for a CPU, on average over a minute: from here on the table has it
OURS = str(ROOT / ".venv" / "bin")


class UnableError(Exception):
    """A machine cannot be made."""


class Machine(NamedTuple):
    """A place to run README's commands in.

    Attributes:
        name: in the table and on the command line.
        python: the interpreter that README's commands are run with: a name, or a path on this computer.
        suite: of a Debian system, else "".
        packages: what `apt install` gets there.
        version: of Python, or "" if it changes with time.
    """

    name: str
    python: str
    suite: str = ""
    packages: tuple[str, ...] = ()
    version: str = ""

    @property
    def root(self) -> Path:
        """The directory that holds the Debian system, or the clone."""
        return OUT / self.name


def debian_systems() -> list[Machine]:
    """Return the bare Debian systems."""
    line = re.search(r"apt install ([a-z0-9. -]+)", (ROOT / "README.md").read_text())
    assert line is not None, "README.md has no line with `apt install`"
    packages = tuple(line[1].split())
    newest = tuple(name.replace("python3-", "python3.15-") for name in packages)
    return [
        Machine("debian-12", "python3", "bookworm", packages, "3.11"),
        Machine("debian-13", "python3", "trixie", packages, "3.13"),
        Machine("debian-testing", "python3", "testing", packages),
        Machine("debian-unstable", "python3", "unstable", packages),
        Machine("debian-unstable-python3.15", "python3.15", "unstable", newest, "3.15"),
    ]


def local_pythons() -> Iterator[Machine]:
    """Find the Pythons of this computer: on the path, and where pyenv has them."""
    for version in (*PYTHONS, *FREE_THREADED):
        name = f"python{version}"
        code = (
            "import sys, sysconfig; free = sysconfig.get_config_var('Py_GIL_DISABLED'); "
            f"assert '%d.%d' % sys.version_info[:2] + 't' * bool(free) == '{version}'"
        )
        pyenv = sorted(map(str, Path.home().glob(f".pyenv/versions/{version.rstrip('t')}.*/bin/{name}")))
        for python in filter(None, [shutil.which(name, path=outer_path()), *pyenv]):
            if subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0:
                yield Machine(name, python, version=version)
                break


def outer_path() -> str:
    """Return the search path without the .venv of this clone."""
    return os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if each != OURS)


def main() -> int:
    """Try the machines; 1 if one failed."""
    machines = {each.name: each for each in [*debian_systems(), *local_pythons()]}
    parser = argparse.ArgumentParser(prog="run.py machines", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"machines to try, all without: {', '.join(machines)}")
    parser.add_argument("--tests", choices=["everyday", "quick", "none"], default="everyday", help="default: everyday")
    parser.add_argument(
        "--wheels", type=Path, help="a directory of wheels that pip may take, such as torch's for the CPU"
    )
    parser.add_argument("--keep", action="store_true", help="keep the clones and systems afterwards")
    options = parser.parse_args()
    unknown = set(options.names) - set(machines)
    if unknown:
        parser.error(f"no machine {', '.join(sorted(unknown))} here; there are {', '.join(machines)}")
    fine = True
    for name in options.names or machines:
        lacking = missing_tools(machines[name])
        if lacking:
            print(f"machines: {name} is left out: {lacking}", flush=True)
            continue
        try:
            found = attempt(machines[name], options.tests, options.wheels)
        except (OSError, subprocess.CalledProcessError, UnableError) as error:
            print(f"machines: {name} could not be made: {error}", flush=True)
            fine = False
            continue
        with RESULTS.open("a") as file:
            file.write(json.dumps(found) + "\n")
        fine = fine and not found["failed"]
        if not options.keep:
            shutil.rmtree(machines[name].root, ignore_errors=True)
    page()
    return 0 if fine else 1


def run_program(main: Callable[[], int]) -> NoReturn:
    """Exit with the status of a program. SIGTERM ends what it started, too, and Ctrl-C shows no traceback."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # run.py says it
        sys.exit(128 + signal.SIGINT)


def missing_tools(machine: Machine) -> str:
    """Say what this computer lacks for a machine, or nothing."""
    if not machine.suite:
        return ""
    if os.geteuid():
        return "a Debian system in a directory needs root"
    return ", ".join(f"there is no {name}" for name in ("debootstrap", "unshare") if shutil.which(name) is None)


def attempt(machine: Machine, tests: str, wheels: Path | None) -> dict[str, object]:
    """Make a machine, run README's commands on it, and return what came of it."""
    load = os.getloadavg()[0]  # of other programs: making the machine is work, too
    prepare(machine, wheels)
    version = run_on(machine, wheels, machine.python, "--version")[1].split()[-1]
    found: dict[str, object] = {"machine": machine.name, "python": version, "failed": [], "commit": commit()}
    found["cpus"], found["date"] = os.cpu_count(), time.strftime("%Y-%m-%d")
    found["load"] = round(load, 1)
    print(f"machines: {machine.name}, Python {version}", flush=True)
    commands = [("digits", "digits"), ("again", "digits")]
    if tests != "none":
        commands.append(("test", "test --quick" if tests == "quick" else "test"))
    for key, command in commands:
        started = time.monotonic()
        status, printed = run_on(machine, wheels, machine.python, "run.py", *command.split())
        found[key] = round(time.monotonic() - started, 1)
        log = OUT / f"{machine.name}-{key}.log"
        log.write_text(printed)
        print(f"  {found[key]:7.1f} s  run.py {command}: {closing_line(printed)}", flush=True)
        if status:
            found["failed"] = [*found["failed"], key]  # type: ignore[misc]
        if key == "digits":
            found["accuracy"] = "".join(re.findall(r"accuracy: ([\d.]+%)", printed)[:1]) or closing_line(printed)
            found["megabytes"] = megabytes(clone(machine) / ".venv")
        if key == "test":
            outcome = closing_line(printed)
            found["tests"], found["outcome"] = command, f"status {status}: {outcome}" if status else outcome
    return found


def closing_line(printed: str) -> str:
    """Return the line that says how a command ended: pytest's count, what run.py stopped with, or the last one."""
    counted = re.findall(r"=+ ((?:\d+ \w+,? ?)+ in [\d.]+s)", printed) or re.findall(r"^(\d+ passed.*)$", printed, re.M)
    if counted:
        return str(counted[-1])
    lines = printed.strip().splitlines() or ["it printed nothing"]
    stopped = [line for line in lines[-1:] if line.startswith("run.py: ")]
    return (stopped or lines)[-1]


def megabytes(venv: Path) -> int:
    """Return the size of a .venv without torch and what comes with it for GPUs."""
    ours = [path for path in venv.rglob("*") if path.is_file() and not path.is_symlink()]
    theirs = re.compile(r"/site-packages/(torch|torchgen|functorch|torch-\d[^/]*|nvidia[^/]*|triton[^/]*|cuda[^/]*)/")
    return round(sum(path.stat().st_size for path in ours if not theirs.search(str(path))) / 1e6)


def clone(machine: Machine) -> Path:
    """Return where a machine's clone is, as seen from here."""
    return machine.root / INSIDE if machine.suite else machine.root


def prepare(machine: Machine, wheels: Path | None) -> None:
    """Make a machine and a clone on it, whatever was there."""
    shutil.rmtree(machine.root, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    if machine.suite:
        packages = f"--include={','.join(machine.packages)}"
        command = ["debootstrap", "--variant=minbase", packages, machine.suite, str(machine.root)]
        log = OUT / f"{machine.name}.log"
        with log.open("w") as file:
            if subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode:
                raise UnableError(f"debootstrap failed for {machine.suite}: {log} says why")
        shutil.copy("/etc/resolv.conf", machine.root / "etc" / "resolv.conf")
        shutil.copy("/etc/hosts", machine.root / "etc" / "hosts")
        certificate = os.environ.get("PIP_CERT")
        if certificate:
            shutil.copy(certificate, machine.root / "etc" / "certificates.pem")
        if wheels:
            shutil.copytree(wheels, machine.root / "wheels")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone(machine))], check=True)


def run_on(machine: Machine, wheels: Path | None, *command: str) -> tuple[int, str]:
    """Run a command in a machine's clone, without a terminal. Returns its status and what it printed."""
    if machine.suite:
        kept = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        if os.environ.get("PIP_CERT"):
            kept["PIP_CERT"] = "/etc/certificates.pem"
        if wheels:
            kept["PIP_FIND_LINKS"] = "/wheels"
        # As a container has it: processes and memory of its own, no terminals. It all goes with the last process.
        script = 'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" && exec chroot "$@"'
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', f"/{INSIDE}", *command]
        command = (
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-ec",
            script,
            "sh",
            str(machine.root),
            *inside,
        )
        place: Path = ROOT
        (machine.root / "dev" / "shm").mkdir(exist_ok=True)
    else:
        foreign = ("VIRTUAL_ENV", "PYTHONPATH")
        kept = {name: value for name, value in os.environ.items() if name not in foreign}
        kept["PATH"] = outer_path()
        if wheels:
            kept["PIP_FIND_LINKS"] = str(wheels.resolve())
        place = clone(machine)
    done = subprocess.run(
        command, cwd=place, env=kept, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def commit() -> str:
    """Return the commit that is tried."""
    return subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


def page() -> None:
    """Write the newest result of each machine into docs/machines.md."""
    newest = {found["machine"]: found for found in map(json.loads, RESULTS.read_text().splitlines())}
    rows = ["| machine | Python | `digits` from nothing | again | `.venv` without torch | tests | CPUs | when |"]
    rows += ["|---|---|--:|--:|--:|---|--:|---|"]
    for found in newest.values():
        tests = f"{found['tests']}: {found['outcome']}".replace(" in ", ", ") if "tests" in found else "not run"
        digits = f"{found['digits']:.0f} s" if found["accuracy"].endswith("%") else found["accuracy"]
        again = f"{found['again']:.0f} s" if "again" not in found["failed"] else "–"
        size, when = f"{found['megabytes']} MB", f"{found['date']}, {found['commit']}"
        busy = f"{found['cpus']}, load {found['load']:.0f}" if found.get("load", 0) >= BUSY else str(found["cpus"])
        cells = [found["machine"], found["python"], digits, again, size, tests, busy, when]
        rows.append(f"| {' | '.join(cells)} |")
    text = PAGE.read_text()
    before, _, rest = text.partition("<!-- results -->\n")
    _, _, after = rest.partition("<!-- end of results -->\n")
    PAGE.write_text("\n".join([f"{before}<!-- results -->", *rows, "<!-- end of results -->", after]))
    print("\n".join(rows), flush=True)


if __name__ == "__main__":
    run_program(main)
