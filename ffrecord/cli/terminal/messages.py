"""What went wrong, in one line for people at a terminal."""

import errno
import os
import re

from ffrecord.errors import FFRecordError, MismatchError

# Advice for programs that call functions, and the same for who calls the command.
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://, GOOGLE_APPLICATION_CREDENTIALS for gs://, "
    "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY for az://"
)
ADVICE = {
    "or pass resume=False to discard": "or use --restart to discard",
    "resume=False of DatasetWriter": "--restart",
    "resume=False": "--restart",
    "(max_size)": "(--max-size)",
    'format="path list"': "--format 'path list'",
    'format="webdataset"': "--format webdataset",
    "verify=True compares every sample, max_skipped leaves": "--verify compares every sample, --max-skipped leaves",
    "give a length (from_iterable), or use samples_per_shard or shard_size": "use --samples-per-shard or --shard-size",
    "left as it is, and so is": "there is something, which --replace replaces; as it is stays",
    "; ffrecord.open opens others": "",
    "'folder' must be a directory": "no directory",
    ": format must be one of": ": --to must be one of",
    "no credentials are given, and": "there are no credentials in the environment, and",
    "credentials are given by storage_options": f"credentials are those of the environment ({CREDENTIALS})",
    "give `region` in storage_options": "set AWS_REGION",
    "give `account_name` in storage_options, or set": "set",
    ": no killed writer left anything that was flushed: No such file or directory": (
        ": no killed writer left anything that was flushed"
    ),
}
# Arguments of functions that have options, as a message has them: with what they are, or should be.
ARGUMENTS = re.compile(r"(?<![\w/.-])(shard_size|samples_per_shard|num_shards|max_skipped)(?= is |=)")
SAID = (errno.EINVAL, errno.EEXIST, errno.EWOULDBLOCK)  # whose words add nothing to a sentence of ours

SHOWN = 3  # differences
LOOKED = "samples looked at."  # begins a difference of one of a few samples, as a write notes them


def in_a_line(error: BaseException) -> str:
    """What an error says, without line ends; errors that we did not mean keep the name of their type.

    Where in a worker an error came from is not in it.
    """
    text = _for_command(_shortened(error, _flat(str(error).partition("\nTraceback (most recent call last)")[0])))
    if isinstance(error, OSError) and error.strerror and error.args[:1] == (error.errno,):
        return _of_call(error)
    if isinstance(error, FFRecordError | OSError | ImportError | ValueError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def numbered(text: str, place: int, index: int | None) -> str:
    """The message of a sample, by the number that it has in its dataset; without one if that is None.

    Args:
        place: its number in what was read, which may be a part of the dataset.
    """
    return re.sub(rf"\ASample {place}: ", "" if index is None else f"Sample {index}: ", text)


def notes(error: BaseException) -> str:
    """What an exception was told on its way: what stays, and how to go on."""
    return "".join(f"; {_for_command(_flat(note))}" for note in getattr(error, "__notes__", []))


def _of_call(error: OSError) -> str:
    """Without the number of the error, and with the name of the file once."""
    name = "" if error.filename is None else os.fsdecode(error.filename)
    sentence, words = _flat(error.strerror or ""), os.strerror(error.errno or 0)
    if error.errno in SAID and sentence.endswith(f": {words}") and len(sentence) > len(words) + len(name) + 4:
        sentence = sentence.removesuffix(f": {words}")
    sentence = _for_command(sentence)
    return f"{name}: {sentence}" if name and name not in sentence else sentence


def _for_command(text: str) -> str:
    """With advice for who calls the command; where it could be of a path it is left alone."""
    for advice, ours in ADVICE.items():
        text = re.sub(rf"(?<!/){re.escape(advice)}(?![\w/])", lambda _, ours=ours: ours, text)  # type: ignore[misc]
    return ARGUMENTS.sub(lambda found: f"--{found[0].replace('_', '-')}", text)


def _shortened(error: BaseException, text: str) -> str:
    """Of what differs, the first: there may be a line for each column. Of single samples only that they differ, where
    nothing else does."""
    found = error.differences if isinstance(error, MismatchError) else []
    told = [each for each in found if not each.startswith(LOOKED)] or ["its samples were others"]
    first = "; ".join(told[:SHOWN])
    more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return text.replace(_flat("; ".join(found)), f"{first}{more}") if found else text


def _flat(text: str) -> str:
    return " ".join(text.split())
