"""Create the environment of the packages that bench_write.py packs with and bench_loader.py loads with: `python
write_environment.py`.

It is writers/ in the environment that this runs in. Packages that cannot be installed are printed, and not measured.
"""

import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("writers.txt")
FFCV = "ffcv==1.0.2"
BUILD = ["setuptools==84.2.1"]  # FFCV's setup.py needs one without declaring it
WRITERS = Path(sys.prefix, "writers")


def install(where: Path, *arguments: str) -> str:
    """Install packages in the environment `where`, which is made if it is not there.

    Returns:
        The reason of a failure, or nothing.
    """
    if not (where / "bin" / "python").exists():
        venv.create(where, with_pip=True)
    pip = [str(where / "bin" / "python"), "-m", "pip", "--no-input", "--disable-pip-version-check", "install"]
    result = subprocess.run([*pip, "--quiet", *arguments], capture_output=True, text=True)
    return result.stderr if result.returncode else ""


def main() -> None:
    for what, arguments, hint in (
        ("other packages", ["--requirement", str(REQUIREMENTS), *BUILD], "they are pinned for Python 3.11"),
        ("FFCV", ["--no-deps", "--no-build-isolation", FFCV], "it needs g++, pkg-config, OpenCV and libturbojpeg"),
    ):
        if error := install(WRITERS, *arguments):
            print(f"NOT MEASURED: {what}, which cannot be installed here ({hint}). {error.strip()[-500:]}")


if __name__ == "__main__":
    main()
