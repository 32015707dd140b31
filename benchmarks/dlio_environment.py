"""Create the environment of DLIO for bench_dlio.py: `python dlio_environment.py`. It is dlio/ in the environment that
this runs in. If DLIO cannot be installed, the reason is printed.
"""

import sys
from pathlib import Path

from write_environment import install

REQUIREMENTS = Path(__file__).with_name("dlio.txt")
DLIO = "dlio_benchmark==2.0.0"
WHERE = Path(sys.prefix, "dlio")


def main() -> None:
    for arguments in (["--requirement", str(REQUIREMENTS)], ["--no-deps", DLIO]):
        if error := install(WHERE, *arguments):
            sys.exit(f"{DLIO} cannot be installed here (it is pinned for Python 3.11). {error.strip()[-500:]}")


if __name__ == "__main__":
    main()
