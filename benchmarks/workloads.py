"""What the benchmarks work on, and what each isolates. Equal workloads give equal bytes."""

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Checksum:
    """CRC-32 of one buffer, again and again.

    Attributes:
        size: bytes.
        calls: "independent" calls may overlap in the CPU, as when a batch's records are checked: throughput. Each
            "dependent" call starts from the result of the one before, as when a file is checked in pieces: latency.
        seed: of the bytes.
    """

    size: int
    calls: str
    seed: int = 7


@dataclass(frozen=True)
class MixedChecksums:
    """CRC-32 of records of many sizes in turn: what wrongly predicted branches cost, which equal sizes hide.

    Attributes:
        smallest, largest: bytes; sizes are uniform between them.
        count: of records, each anywhere in 64 KiB. Branch predictors learn a few thousand sizes by heart.
        seed: of sizes, places and bytes.
    """

    smallest: int
    largest: int
    count: int = 65536
    seed: int = 7


# The call and the last reduction (16 to 100 bytes), the step from one algorithm to the next (256 bytes, 1 KiB), the
# inner loop (to 64 KiB, in L1 or L2), the outer caches (1 MiB), memory (64 MiB).
CHECKSUM_SIZES = [16, 64, 100, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB, 64 * MIB]
CHECKSUMS = [Checksum(size, calls) for calls in ("independent", "dependent") for size in CHECKSUM_SIZES]
MIXED_CHECKSUMS = [MixedChecksums(1, 64), MixedChecksums(1, 256), MixedChecksums(1, 2048)]
SMOKE_CHECKSUMS = [Checksum(64, "independent"), Checksum(64, "dependent"), Checksum(16 * KIB, "independent")]
SMOKE_MIXED = [MixedChecksums(1, 256, count=64)]
