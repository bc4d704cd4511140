"""The documentation's site: `make docs` builds it with Sphinx, MyST and Furo, without a network.

The pages stay where they are in the tree, so each link works in a checkout and on the site alike.
"""

from __future__ import annotations

from typing import Any

#: The pages in the order of the site's menu. Sphinx warns of a page that is missing here.
CONTENTS = {
    "Guides": (
        *("docs/transcribe", "docs/speak", "docs/serve", "docs/mcp", "docs/deploy", "docs/models"),
        "docs/devices",
    ),
    "Reference": ("docs/cli", "docs/python", "docs/coming-from", "docs/compat"),
    "Behaviour": ("docs/verification", "docs/times", "docs/faults", "SECURITY"),
    "Models": ("MODELS/whisper", "MODELS/parakeet", "MODELS/qwen3_tts"),
    "Inside": (
        *("docs/architecture", "docs/engine", "docs/indexes", "docs/upstream", "CONTRIBUTING"),
        *("tests/README", "CHANGELOG"),
    ),
    "Measurements": (
        *("benchmarks/README", "benchmarks/gpu", "benchmarks/NOTES", "benchmarks/cpu"),
        *("benchmarks/accuracy", "benchmarks/long", "benchmarks/words", "examples/README"),
    ),
}

project = "oscine"
author = copyright = "the oscine authors"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", *(f"{folder}/*.md" for folder in ("docs", "MODELS", "benchmarks"))]
include_patterns += ["examples/*.md", "tests/*.md"]
exclude_patterns = [".*", "build", "src", "tools"]
myst_heading_anchors = 4  # headings have the anchors that GitHub gives them
html_theme = "furo"
html_title = "oscine"
templates_path = ["_templates"]
html_additional_pages = {"index": "index.html"}
html_copy_source = False
html_show_sphinx = False


def add_contents(_: Any, page: str, source: list[str]) -> None:
    """Append the site's menu to the first page, which is the README."""
    if page == root_doc:
        for caption, pages in CONTENTS.items():
            entries = "\n".join(f"/{page}" for page in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def setup(app: Any) -> None:
    """Register the event that adds the menu."""
    app.connect("source-read", add_contents)
