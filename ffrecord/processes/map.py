"""Work in parts that have numbers: each worker of a crew is asked for one part after the other."""

from collections.abc import Iterable, Iterator

import msgspec

from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool
from ffrecord.processes.process import Link


def map_parts(crew: WorkerPool, numbers: Iterable[int], ahead: int = 1) -> Iterator[bytes]:
    """Ask for all parts, and give the answers as they come; then the crew is dismissed.

    Args:
        crew: started; whose workers go by `parts_asked`.
        numbers: of the parts, ints >= 0, in the order in which they are asked for.
        ahead: parts that a worker is asked for at a time, the first in hand and the others in reserve.

    Raises:
        As `WorkerPool.listen` and `WorkerPool.dismiss`.
    """
    rest = iter(numbers)
    left = sum(_ask(crew, worker, rest) for worker in [*range(crew.count)] * ahead)
    while left:
        for worker, message in crew.listen():
            left += _ask(crew, worker, rest) - 1
            yield message
    crew.dismiss()


def _ask(crew: WorkerPool, worker: int, rest: Iterator[int]) -> bool:
    """Ask for the next part; whether there is one."""
    number = next(rest, None)
    if number is not None:
        crew.send(worker, msgspec.msgpack.encode(number))
    return number is not None


def parts_asked(link: Link, heart: Heart) -> Iterator[int]:
    """What a worker is asked for, one number after the other; each is to be answered by one message."""
    while True:
        heart.idle()
        yield msgspec.msgpack.decode(link.receive(wait=True) or b"", type=int)
