"""CRC-32 and CRC-32C of buffers, by the fastest kernel that this CPU supports.

CRC-32 has the polynomial 0xEDB88320 (zlib, gzip, zip, PNG and `.ffr`), CRC-32C 0x82F63B78 (TFRecord, framed snappy).
A kernel is one implementation. At import, the module finds the kernels that this machine can run:

    avx512     VPCLMULQDQ on 512 bits; Intel since Ice Lake, AMD since Zen 4
    avx2       VPCLMULQDQ on 256 bits; AMD Zen 3, Intel client CPUs since Alder Lake
    pclmul     PCLMULQDQ; any x86-64 of the last ten years
    sse4.2     the CRC32 instruction of x86-64, for CRC-32C only
    pmull      PMULL; 64-bit ARM with the cryptographic extension
    armv8-crc  the CRC32 instructions of 64-bit ARM
    zlib       libz.so.1, where it is installed; for CRC-32 only
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
    """Return the CRC-32 of `data`, the same number as `zlib.crc32(data, value)`.

    The GIL is released during the computation, unless `data` has less than 16 KiB: then waiting for the GIL may take
    longer than the computation. Nobody may write to `data` meanwhile, or the result matches no state of the buffer.

    Args:
        data: C-contiguous buffer of any size; its bytes count, not its items.
        value: CRC-32 of the bytes before `data`; its low 32 bits count.

    Returns:
        An int in [0, 2**32).

    Raises:
        TypeError: `data` has no buffer, or `value` is no integer.
        BufferError, ValueError: `data` is not contiguous; the type of `data` chooses the class.
    """

def crc32_combine(crc1: int, crc2: int, size2: int, /) -> int:
    """Return the CRC-32 of two adjacent pieces from the CRC-32 of each.

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
    """Return the CRC-32C of `data`, following bytes whose CRC-32C is `value`. Arguments and errors are those of
    `crc32`.
    """

def crc32c_combine(crc1: int, crc2: int, size2: int, /) -> int:
    """Return the CRC-32C of two adjacent pieces. Arguments and errors are those of `crc32_combine`."""

def mask(crc: int, /) -> int:
    """Return the masked form in which TFRecord and framed snappy store a CRC-32C: rotated by 15 bits, plus 0xA282EAD8.

    Args:
        crc: a CRC-32C; its low 32 bits count.

    Returns:
        An int in [0, 2**32).

    Raises:
        TypeError: `crc` is no integer.
    """

def unmask(word: int, /) -> int:
    """Return the CRC-32C whose masked form is `word`; the low 32 bits of `word` count.

    Raises:
        TypeError: `word` is no integer.
    """

def kernels() -> tuple[str, ...]:
    """Return the names of the CRC-32 kernels usable on this machine, best first."""

def crc32c_kernels() -> tuple[str, ...]:
    """Return the names of the CRC-32C kernels usable on this machine, best first; `crc32c` uses the first."""

def kernel() -> str:
    """Return the name of the CRC-32 kernel in use: the first of `kernels()`."""

def crc32_with(kernel: str, data: Buffer, /, value: int = 0) -> int:
    """Return the CRC-32 of `data`, computed by the named kernel. It is for tests and benchmarks.

    Raises:
        ValueError: `kernel` is not in `kernels()`.
        TypeError, BufferError: the same as for `crc32`.
    """

def crc32c_with(kernel: str, data: Buffer, /, value: int = 0) -> int:
    """Return the CRC-32C of `data`, computed by the named kernel. It is for tests and benchmarks.

    Raises:
        ValueError: `kernel` is not in `crc32c_kernels()`.
        TypeError, BufferError: the same as for `crc32c`.
    """
