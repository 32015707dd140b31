"""CRC-32 and CRC-32C of buffers, by the fastest kernel this CPU runs.

CRC-32 has the polynomial 0xEDB88320 (zlib, gzip, zip, PNG and `.ffr`), CRC-32C 0x82F63B78 (TFRecord, framed snappy).
A kernel is one implementation. Which ones this machine can run is found once, when the module is imported:

    avx512     VPCLMULQDQ on 512 bits; Intel since Ice Lake, AMD since Zen 4
    avx2       VPCLMULQDQ on 256 bits; AMD Zen 3, Intel client CPUs since Alder Lake
    pclmul     PCLMULQDQ; any x86-64 of the last ten years
    sse4.2     the CRC32 instruction of x86-64, which is of CRC-32C only
    pmull      PMULL; 64-bit ARM with the cryptographic extension
    armv8-crc  the CRC32 instructions of 64-bit ARM
    zlib       libz.so.1, where it is installed; of CRC-32 only
    portable   plain C; everywhere
"""

from typing_extensions import Buffer

__all__ = [
    "crc32",
    "crc32_combine",
    "crc32_with",
    "crc32c",
    "crc32c_combine",
    "crc32c_kernels",
    "crc32c_with",
    "kernel",
    "kernels",
    "mask",
    "unmask",
]

__pyx_capi__: dict[str, object]  # what `cimport` reads, declared in _crc.pxd

def crc32(data: Buffer, /, value: int = 0) -> int:
    """The CRC-32 of `data`, the same as `zlib.crc32(data, value)`.

    The GIL is released for the time of the computation, but for less than 16 KiB, which take less time than
    getting it back may. Nobody may write to `data` meanwhile, or the result is that of no state it was in.

    Args:
        data: C-contiguous buffer of any size; its bytes count, not its items.
        value: CRC-32 of what comes before `data`; its low 32 bits count.

    Returns:
        An int in [0, 2**32).

    Raises:
        TypeError: `data` has no buffer, or `value` is no integer.
        BufferError, ValueError: `data` is not contiguous; the class is the one that its type raises.
    """

def crc32_combine(crc1: int, crc2: int, size2: int, /) -> int:
    """The CRC-32 of two pieces together, from those of each.

    Args:
        crc1: CRC-32 of the first piece; its low 32 bits count, as those of `crc2` do.
        crc2: CRC-32 of the second piece.
        size2: bytes in the second piece, 0 <= size2 < 2**64. The time taken grows with its logarithm.

    Raises:
        ValueError: `size2` is negative.
        OverflowError: `size2` is 2**64 or more.
        TypeError: an argument is no integer.
    """

def crc32c(data: Buffer, /, value: int = 0) -> int:
    """The CRC-32C of `data`, which follows what has the CRC-32C `value`; otherwise as `crc32`."""

def crc32c_combine(crc1: int, crc2: int, size2: int, /) -> int:
    """The CRC-32C of two pieces together; as `crc32_combine`."""

def mask(crc: int, /) -> int:
    """The word that TFRecord and framed snappy store for a CRC-32C: turned by 15 bits, plus 0xA282EAD8.

    Args:
        crc: its low 32 bits count.

    Returns:
        An int in [0, 2**32).

    Raises:
        TypeError: `crc` is no integer.
    """

def unmask(word: int, /) -> int:
    """The CRC-32C for which `mask` gives `word`, of which the low 32 bits count.

    Raises:
        TypeError: `word` is no integer.
    """

def kernels() -> tuple[str, ...]:
    """The names of the kernels of CRC-32 usable on this machine, best first."""

def crc32c_kernels() -> tuple[str, ...]:
    """The names of the kernels of CRC-32C usable on this machine, best first; `crc32c` uses the first."""

def kernel() -> str:
    """The name of the kernel of CRC-32 in use: the first of `kernels()`."""

def crc32_with(kernel: str, data: Buffer, /, value: int = 0) -> int:
    """As `crc32`, by the kernel named: for tests and benchmarks.

    Raises:
        ValueError: `kernel` is not in `kernels()`.
        TypeError, BufferError: as `crc32`.
    """

def crc32c_with(kernel: str, data: Buffer, /, value: int = 0) -> int:
    """As `crc32c`, by the kernel named.

    Raises:
        ValueError: `kernel` is not in `crc32c_kernels()`.
        TypeError, BufferError: as `crc32`.
    """
