"""Work in numbered parts: each worker of a pool gets one part after the other."""

from collections.abc import Iterable, Iterator

import msgspec

from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool
from ffrecord.processes.process import Link


def map_parts(pool: WorkerPool, numbers: Iterable[int], ahead: int = 1) -> Iterator[bytes]:
    """Hand out all parts, and yield the answers as they arrive; then dismiss the pool.

    Args:
        pool: started pool whose workers use `receive_parts`.
        numbers: numbers of the parts, ints >= 0, in the order in which they are handed out.
        ahead: number of parts that a worker has at a time, one in hand and the others in reserve.

    Raises:
        As `WorkerPool.listen` and `WorkerPool.dismiss`.
    """
    rest = iter(numbers)
    left = sum(_hand_out(pool, worker, rest) for worker in [*range(pool.count)] * ahead)
    while left:
        for worker, message in pool.listen():
            left += _hand_out(pool, worker, rest) - 1
            yield message
    pool.dismiss()


def _hand_out(pool: WorkerPool, worker: int, rest: Iterator[int]) -> bool:
    """Hand out the next part; return whether there was one."""
    number = next(rest, None)
    if number is not None:
        pool.send(worker, msgspec.msgpack.encode(number))
    return number is not None


def receive_parts(link: Link, heart: Heart) -> Iterator[int]:
    """Yield the numbers of the parts for this worker; it must answer each by one message."""
    while True:
        heart.idle()
        yield msgspec.msgpack.decode(link.receive(wait=True) or b"", type=int)
