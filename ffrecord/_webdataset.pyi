"""Names of members in WebDataset's archives: keys, fields, samples."""

import numpy as np
import numpy.typing as npt

def split(
    blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], /
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Part the names of an archive's regular files, in their order, by WebDataset's rules.

    Args:
        blob, offsets: the names, as `Names` has them, whose checks they passed.

    Returns:
        (dots, begins): int64 [n], bytes of each name's key, which a dot and the field follow; -1 for members that are
        of no sample: names without a dot in their last part, and `__...__` and all below. And uint8 [n]: 1 where a
        sample begins, a member whose key is not that of the one before it (those of no sample left aside).
    """
