"""What test_errno_sweep.py and test_short_transfers.py have done again and again: opening files and reading them."""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import builders
import ffr_twin
from sweeping import Change, Fault, Work

from ffrecord import FileReader, _aio
from ffrecord.sources import open as open_source

# Neighbours, gaps, an empty one, one of several direct pieces.
SIZES = [3000, 0, 5000, 100, 600_000, 70_000, 1, 4096]
# The second one of several pieces that are read by themselves.
LARGE_SIZES = [10, 5_000_000, 0, 1_200_000, 5]
# Which cannot be done without; what fails elsewhere is done in another way.
NEEDED = ("open", "fstat", "pread", "mmap", "malloc", "set_blocking")
# Which no signal interrupts.
UNINTERRUPTED = ("stat", "fstat", "mmap", "close", "set_blocking")
# With what else, always, so that the plain pread comes to be called.
BESIDE = {
    "pread": ("preadv", 1, Change("short", 512, True)),
    "auto": ("preadv2", 1, Change("fail", errno.EAGAIN, True)),
    "direct": ("io_getevents", 1, Change("event fails", errno.EIO, True)),
}


class Reading:
    """A file is opened, read and closed.

    Args:
        io: of the reader.
        in_sequence: all samples one by one, instead of a batch.
        last_resort: everything else fails, so that pread is called.
        afresh: with contexts of AIO that are made each time.
    """

    def __init__(
        self, path: str, io: str, *, in_sequence: bool = False, last_resort: bool = False, afresh: bool = False
    ) -> None:
        self.path, self.io, self.in_sequence, self.afresh = path, io, in_sequence, afresh
        self.beside: Sequence[Fault] = [BESIDE[io]] if last_resort else ()
        with FileReader(path, io="pread") as reader:
            everything = builders.read_all(reader)
        n = len(everything)
        self.indices = [*range(n)] if in_sequence else [*range(n), n // 2, 1, 1, n - 1]
        self.wanted = [everything[i] for i in self.indices]

    def prepare(self) -> None:
        """The context is kept, but for `afresh`."""
        if self.afresh:
            _aio.release()

    def do(self) -> None:
        with FileReader(self.path, io=self.io) as reader:
            if self.in_sequence:
                self.got = [sample.tobytes() for sample in reader]
            else:
                self.got = builders.unpack(reader.read_packed(self.indices))

    def compare(self) -> None:
        """What was read is right."""
        assert self.got == self.wanted, "wrong bytes"

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        number = change.value
        if error is None:
            self.compare()
        elif isinstance(error, MemoryError):
            assert site in ("malloc", "mmap")
        else:
            assert change.action == "fail" and site in (*NEEDED, "stat", "close"), repr(error)
            assert number != errno.EINTR or site in UNINTERRUPTED, "a signal is no error"
            assert isinstance(error, OSError), repr(error)
            assert error.errno == number or site == "stat", repr(error)  # a file that seems not to be there
            assert site == "close" or self.path in str(error), repr(error)
            assert site in ("open", "stat", "close") or isinstance(error, RuntimeError), repr(error)
        self.do()
        assert self.got == self.wanted, "wrong bytes afterwards"


class ReadingImages:
    """A folder of files, found and read by threads."""

    beside: Sequence[Fault] = ()

    def __init__(self, directory: Path) -> None:
        self.root, data = directory / "images", builders.records([10, 0, 70_000, 3])
        for i, each in enumerate(data):
            place = self.root / str(i % 2)
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i}.jpg").write_bytes(each)
        self.wanted = [data[0], data[2], data[1], data[3]]

    def prepare(self) -> None:
        """Nothing is changed by it."""

    def do(self) -> None:
        with open_source(self.root) as store:
            self.got = [bytes(sample) for sample in store.read([0, 1, 2, 3])]

    def check(self, site: str, change: Change, error: BaseException | None) -> None:
        if error is None:
            assert self.got == self.wanted, "wrong bytes"
        elif not isinstance(error, MemoryError):
            assert isinstance(error, OSError | ValueError), repr(error)
            assert str(self.root.parent) in str(error) or site == "close", repr(error)
        self.do()
        assert self.got == self.wanted, "wrong bytes afterwards"


def works(directory: Path) -> dict[str, Callable[[], Work]]:
    """All of them by name."""
    directory.mkdir(exist_ok=True)
    path = str(directory / "a.ffr")
    if not Path(path).exists():
        builders.write_samples(Path(path), builders.records(SIZES))
    extended = builders.write(directory / "extended.ffr", ffr_twin.build_extended([b"x", b"yz"], b"\x80", 20))
    found: dict[str, Callable[[], Work]] = {"images": lambda: ReadingImages(directory)}
    found["extension block"] = partial(Reading, extended, "pread")
    for io in builders.IO_MODES:
        found[io] = partial(Reading, path, io)
        found[f"{io}, in sequence"] = partial(Reading, path, io, in_sequence=True)
    large = str(directory / "large.ffr")
    if not Path(large).exists():
        builders.write_samples(Path(large), builders.records(LARGE_SIZES))
    for io in ("pread", "auto"):
        found[f"{io}, large"] = partial(Reading, large, io)
    for io in BESIDE:
        found[f"{io}, last resort"] = partial(Reading, path, io, last_resort=True)
    found["pread, in sequence, last resort"] = partial(Reading, path, "pread", in_sequence=True, last_resort=True)
    found["direct, afresh"] = partial(Reading, path, "direct", afresh=True)
    return found
