"""DLIO with `.ffr` files, in the environment that `dlio_environment.py` makes: `python dlio_host.py FRAMEWORK`.

A line on its standard input is a JSON array: a directory for the output, then overrides as DLIO's command takes them,
such as "workload=unet3d_h100". Each line is run in a forked process, so DLIO is imported once. The answer is a line
{"status", "samples", "bytes"}: the exit status, and what the reader reported.
"""

import importlib
import json
import multiprocessing
import os
import sys
from collections.abc import Callable

import dlio_tracer

FRAMEWORKS = {
    "pytorch": ("framework.torch_framework", "data_loader.torch_data_loader", "checkpointing.pytorch_checkpointing"),
    "tensorflow": ("framework.tf_framework", "data_loader.tf_data_loader", "checkpointing.tf_checkpointing"),
}


def run(command: Callable[[], None], out: str, overrides: list[str]) -> None:
    """Run DLIO's command; all that it prints is in OUT/log.txt."""
    log = os.open(os.path.join(out, "log.txt"), os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(out)
    sys.argv = ["dlio_benchmark", f"hydra.run.dir={out}", f"++workload.output.folder={out}", *overrides]
    command()


def main(framework: str) -> None:
    dlio_tracer.install()
    import mpi4py

    mpi4py.rc.initialize = False  # DLIO does it, in each process of `run`
    import dlio_ffr
    from dlio_benchmark.main import main as command

    for name in FRAMEWORKS[framework]:
        importlib.import_module(f"dlio_benchmark.{name}")
    dlio_ffr.register()
    fork = multiprocessing.get_context("fork")
    for line in sys.stdin:
        out, *overrides = json.loads(line)
        dlio_tracer.COUNTS[:] = [0, 0]
        process = fork.Process(target=run, args=(command, out, overrides))
        process.start()
        process.join()
        samples, size = dlio_tracer.COUNTS[:]
        print(json.dumps({"status": process.exitcode, "samples": samples, "bytes": size}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
