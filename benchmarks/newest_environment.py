"""Create the environment of the packages that bench_newest.py measures: `python newest_environment.py`.

It is newest/ in the environment that this runs in. If they cannot be installed, the reason is printed, and none of them
is measured.
"""

import sys
from pathlib import Path

from write_environment import install

REQUIREMENTS = Path(__file__).with_name("newest.txt")
WHERE = Path(sys.prefix, "newest")


def main() -> None:
    if error := install(WHERE, "--no-deps", "--only-binary", ":all:", "--requirement", str(REQUIREMENTS)):
        print(f"NOT MEASURED: packages that cannot be installed here (pinned for Python 3.11). {error.strip()[-500:]}")


if __name__ == "__main__":
    main()
