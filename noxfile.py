"""Build and test on every Python that is supported: `python3 run.py versions`. Those that are not here are skipped."""

import tempfile

import nox

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
EXTRAS = "torch,image,jpeg,zstd,snappy,parquet,huggingface,fsspec,remote,plot,ray"
PARALLEL = ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"]

nox.options.default_venv_backend = "venv"
nox.options.envdir = "out/nox"
nox.options.sessions = ["packaging", "tests"]


def tree(session: nox.Session) -> str:
    """A clone of its own: what one Python builds is in the way of another's. Only what is committed is tested."""
    made = f"{session.create_tmp()}/ffrecord"
    session.env["TMPDIR"] = tempfile.gettempdir()  # not one inside of the environment, which Ray refuses
    session.run("rm", "-rf", made, external=True)
    session.run("git", "clone", "--quiet", ".", made, external=True)
    session.chdir(made)
    return made


@nox.session(python=PYTHONS)
def packaging(session: nox.Session) -> None:
    """Source distribution and wheels, built in isolation, repaired, checked, installed where there is no compiler."""
    tree(session)
    session.install("--upgrade", "pip", "--constraint", "constraints.txt")
    session.install("pytest", "pytest-timeout", "--constraint", "constraints.txt")
    session.run("pytest", "--noconftest", "-m", "long", "tests/test_packaging.py", *session.posargs)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The everyday tests; arguments are pytest's."""
    tree(session)
    session.install("--upgrade", "pip", "--constraint", "constraints.txt")
    both = ["--constraint", "constraints.txt", "--build-constraint", "constraints.txt"]
    session.install("--editable", f".[{EXTRAS}]", "--group", "test", "--group", "lint", "--group", "examples", *both)
    session.run("python", "-m", "pytest", *PARALLEL, *session.posargs)
