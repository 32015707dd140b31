"""The page, made of its files: for the server, or as one file with all data."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from ffrecord.cli.terminal.output import json_of

HERE = "ffrecord.cli.viewer"
SCRIPTS = ("client.js", "matching.js", "grid.js", "panel.js", "summary.js", "page.js")  # joined in this order


def served(begin: dict[str, Any]) -> tuple[bytes, str]:
    """Make the page that asks the server for samples. Return it with its Content-Security-Policy."""
    policy = f"{_policy()}; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
    return _filled({"begin": begin}, "").encode(), policy


def standalone(kept: dict[str, Any]) -> bytes:
    """Make a page that needs no server: `kept` has all data that it shows."""
    policy = f"{_policy()}; img-src data:"
    return _filled(kept, f'<meta http-equiv="Content-Security-Policy" content="{policy}">').encode()


def _filled(data: dict[str, Any], meta: str) -> str:
    page, style, script = _parts()
    holes = {"<!--meta-->": meta, "/*style*/": style, "/*script*/": script, "{/*data*/}": _embedded(data)}
    for hole, content in holes.items():
        before, _, after = page.partition(hole)
        page = f"{before}{content}{after}"
    return page


def _embedded(data: dict[str, Any]) -> str:
    """Encode data as JSON that cannot end the script element or begin a comment, whatever text it has."""
    return json_of(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy() -> str:
    """Return the policy: only our own style and script, known by their hashes, and nothing from elsewhere."""
    _, style, script = _parts()
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _parts() -> tuple[str, str, str]:
    """Load the page, its style and its script."""
    texts = {name: files(HERE).joinpath(name).read_text("utf-8") for name in ("page.html", "page.css", *SCRIPTS)}
    return texts["page.html"], texts["page.css"], "\n".join(texts[name] for name in SCRIPTS)
