"""`ffrecord info`: facts about a dataset, without reading its samples.

For a dataset with dataset.json, only that file, the sizes of the shards and the extension block of one shard are read.
A hundred million samples therefore take as long as a hundred.
"""

import argparse

from ffrecord.cli.dataset_facts import facts_for_json, facts_of, format_facts
from ffrecord.cli.sources import add_source, manifest_of, open_source
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.reading.paths import resolve_directory

EXAMPLES = """\
examples:
  ffrecord info data/train
  ffrecord info --json archive.zip

Image folders and lists of paths are shown without sizes, which would need a look at each file."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH."""
    parser.epilog = EXAMPLES
    add_source(parser)


def run(given: argparse.Namespace, out: Output) -> int:
    """Print the facts. Return BAD_NEWS if shards are missing or have another size, or if a file was cut."""
    # Resolve links only once: a moment later a link may lead to another directory, with other shards.
    directory = resolve_directory(given.source)
    listed = manifest_of(given, directory)
    if listed is None:
        with open_source(given, check_data=False) as store:
            facts = facts_of(given.source, store)
    else:
        facts = facts_of(directory, listed) | {"path": given.source}
    out.facts(facts_for_json(facts) if out.json else format_facts(facts))
    return exit_codes.BAD_NEWS if facts["wrong"] else exit_codes.DONE
