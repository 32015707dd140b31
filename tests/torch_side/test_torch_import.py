"""What importing the torch part does, and what it leaves alone."""

import subprocess
import sys

import pytest

import ffrecord.torch
from ffrecord.torch import dataloader, dataset


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_names():
    assert set(ffrecord.torch.__all__) >= {"ConcatDataset", "DataLoader", "Dataset", "ReaderRegistry", "Subset"}
    assert ffrecord.torch.__all__ == sorted(ffrecord.torch.__all__)
    assert all(hasattr(ffrecord.torch, name) for name in ffrecord.torch.__all__)
    assert ffrecord.torch.ReaderResitry is ffrecord.torch.ReaderRegistry
    for name in ("ConcatDataset", "Dataset", "ReaderRegistry", "Subset"):
        assert getattr(dataset, name) is getattr(ffrecord.torch, name)
    assert dataloader.DataLoader is ffrecord.torch.DataLoader
    assert dataloader.SkipableSampler([1, 2]).step == 0


def test_only_here_is_torch_imported():
    assert run("import sys, ffrecord; print('torch' in sys.modules)") == "False\n"


def test_torch_itself_is_left_alone():
    """But for what default_collate knows of types: ours are added, which is how it is meant to be extended."""
    code = """
        import torch.utils.data.dataloader as d
        known = dict(d._utils.collate.default_collate_fn_map)
        def parts():
            return [dict(vars(part)) for part in (d, d._DatasetKind, d.DataLoader, d._utils.fetch, d._utils.worker)]
        before = parts()
        import ffrecord.torch
        known_now = d._utils.collate.default_collate_fn_map
        added = [kind.__module__ for kind in known_now if kind not in known]
        assert known.items() <= known_now.items() and added == 3 * ["ffrecord.torch.samples"], added
        print(before == parts())
    """
    assert run("\n".join(line[8:] for line in code.splitlines())) == "True\n"


def test_with_the_oldest_torch():
    """What torch 2.0 does not have is not asked for when this is imported."""
    code = """
        import torch.utils.data
        for part, names in ((torch.utils._pytree, ["tree_leaves", "tree_iter"]), (torch, ["jagged", "uint16"])):
            for name in names:
                vars(part).pop(name, None)
        import ffrecord.torch
        print("imported")
    """
    assert run("\n".join(line[8:] for line in code.splitlines())) == "imported\n"


@pytest.mark.parametrize(
    ("missing", "message"),
    [("torch", "ffrecord.torch needs torch: pip install torch"), ("numbers", "numbers is gone")],
)
def test_without_torch(missing: str, message: str):
    """Only torch's own absence is told as such; that of something inside it is not."""
    code = f"""
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError(f"{{name}} is gone", name=name)
import ffrecord
sys.modules.pop({missing!r}, None)
sys.meta_path.insert(0, Gone())
try:
    import ffrecord.torch
except ImportError as error:
    print(error, error.name, sep="|")
"""
    assert run(code) == f"{message}|{missing}\n"
