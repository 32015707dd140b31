"""A hook of MkDocs: what pages link to outside of docs/ is part of the site, below tree/.

Markdown there becomes pages (README.md, CHANGELOG.md …), everything else plain text, a directory the list of what is in
it. In the repository the links lead to the files themselves.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:)([^)\s#]+)")
FENCE = re.compile(r"^(```.*\n(?:.*\n)*?```)$", re.MULTILINE)
TITLE = re.compile(r"^```(\w+) (.*)$", re.MULTILINE)
# Weights in the search. Somebody who asks in whole words looks for a task; who looks for a name finds it all the same.
WEIGHTS = {"faq.md": 2, "reference/": 0.5, "tree/": 0.2, "peers.md": 0.2, "benchmarks.md": 0.2, "scale.md": 0.5}
BEHIND = 0.2  # of pages that the navigation leaves out: decisions, tables of figures


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to, what those link to, and so on."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    while waiting:
        for path in linked(waiting.pop()):
            if files.get_file_from_path(uri(path)) is None:
                files.append(made(path, config))
                if path.suffix == ".md":
                    waiting.append(path)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """The page with its links as they are on the site; MkDocs itself says which of them lead nowhere."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # it has the contents of the site itself
    found = next((weight for begins, weight in WEIGHTS.items() if page.file.src_uri.startswith(begins)), 1)
    page.meta["search"] = {"boost": BEHIND if page.file.inclusion.is_not_in_nav() else found}
    here = origin(page.file.src_uri)
    parts = FENCE.split(markdown)  # prose, a block of code, prose, …
    parts[::2] = [LINK.sub(lambda found: onsite(here, found[1]), prose) for prose in parts[::2]]
    # The name of a file, which the tests make of the block, is its title.
    parts[1::2] = [TITLE.sub(r'```\1 title="\2"', block) for block in parts[1::2]]
    return "".join(parts)


def linked(page: Path) -> list[Path]:
    """Everything outside of docs/ that a page links to and that exists."""
    prose = "".join(FENCE.split(page.read_text())[::2])
    targets = {(page.parent / target).resolve() for target in LINK.findall(prose)}
    return sorted(path for path in targets if is_outside(path) and path.exists())


def is_outside(path: Path) -> bool:
    """Whether a path is in the repository, but not among the documents."""
    return path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)


def onsite(here: Path, target: str) -> str:
    """A link of the file `here`, as a link of its page."""
    path = (here.parent / target).resolve()
    if not path.is_relative_to(ROOT) or not path.exists():
        return target
    return Path(os.path.relpath(uri(path), Path(uri(here)).parent)).as_posix()


def uri(path: Path) -> str:
    """Where a file of the repository is among the files of the site."""
    if not is_outside(path):
        return path.relative_to(DOCS).as_posix()
    name = (Path("tree") / path.relative_to(ROOT)).as_posix()
    return name if path.suffix in (".md", ".png", ".svg") else f"{name}.txt"


def origin(src_uri: str) -> Path:
    """The file of the repository that a page was made from."""
    inside = src_uri.removeprefix("tree/")
    return DOCS / src_uri if inside == src_uri else ROOT / inside


def made(path: Path, config: MkDocsConfig) -> File:
    """A file of the site for one outside of docs/."""
    if not path.is_dir():
        return File.generated(config, uri(path), abs_src_path=str(path))
    names = [f"{child.name}/" if child.is_dir() else child.name for child in sorted(path.iterdir())]
    listed = [name for name in names if not name.startswith((".", "__pycache__"))]
    return File.generated(config, uri(path), content="\n".join(listed) + "\n")
