"""The page, made of its files: for the server, or as one file with all data."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from ffrecord.cli.terminal.output import to_json

HERE = "ffrecord.cli.viewer"
SCRIPTS = ("client.js", "grid.js", "panel.js", "summary.js", "page.js")  # joined in this order


def make_server_page(begin: dict[str, Any]) -> tuple[bytes, str]:
    """Make the page that asks the server for samples. Return it with its Content-Security-Policy."""
    policy = f"{_make_policy()}; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
    return _fill_template({"begin": begin}, "").encode(), policy


def make_standalone_page(kept: dict[str, Any]) -> bytes:
    """Make a page that needs no server: `kept` has all data that it shows."""
    policy = f"{_make_policy()}; img-src data:"
    return _fill_template(kept, f'<meta http-equiv="Content-Security-Policy" content="{policy}">').encode()


def _fill_template(data: dict[str, Any], meta: str) -> str:
    page, style, script = _load_parts()
    holes = {"<!--meta-->": meta, "/*style*/": style, "/*script*/": script, "{/*data*/}": _embed_json(data)}
    for hole, content in holes.items():
        before, _, after = page.partition(hole)
        page = f"{before}{content}{after}"
    return page


def _embed_json(data: dict[str, Any]) -> str:
    """Encode data as JSON that cannot end the script element or begin a comment, whatever text it has."""
    return to_json(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _make_policy() -> str:
    """Return the policy: only our own style and script, known by their hashes, and nothing from elsewhere."""
    _, style, script = _load_parts()
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _load_parts() -> tuple[str, str, str]:
    """Load the page, its style and its script."""
    texts = {name: files(HERE).joinpath(name).read_text("utf-8") for name in ("page.html", "page.css", *SCRIPTS)}
    return texts["page.html"], texts["page.css"], "\n".join(texts[name] for name in SCRIPTS)
