"""Planted in memory that workers lend to loaders: what could overwrite a batch that somebody still looks at."""

from planted.defect import Defect

DEFECTS = (
    Defect(
        "a-batch-that-is-held-overwritten",
        "G6",
        "ffrecord/torch/shared_memory.py",
        "        fcntl.flock(own, fcntl.LOCK_SH)\n",
        "",
        ("test_torch_transfer.py::test_what_is_held_stays_as_it_was",),
    ),
    Defect(
        "a-child-lends-what-its-parent-lends",
        "G6",
        "ffrecord/torch/shared_memory.py",
        "call_in_children(_renew_after_fork)\n",
        "",
        ("test_torch_transfer.py::test_what_a_forked_child_may_look_at_is_not_used_again",),
    ),
    Defect(
        "batches-on-their-way-overwritten",
        "G6",
        "ffrecord/torch/shared_memory.py",
        "        if self.underway:\n            return False\n",
        "",
        ("test_torch_transfer.py::test_what_has_not_arrived_stays_as_it_was",),
    ),
)
