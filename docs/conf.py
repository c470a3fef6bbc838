"""Settings of Sphinx: Markdown pages, one theme, diagrams. Built by `make docs`, where every warning is an error."""

from __future__ import annotations

import bough

project = "Bough"
author = "The Bough developers"
copyright = "The Bough developers"  # noqa: A001 - Sphinx' name for it
version = release = bough.__version__

extensions = ["myst_parser", "sphinxcontrib.mermaid"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3

smartquotes = False  # -- would become a dash, and no option could be copied
html_theme = "furo"
html_title = "Bough"
html_static_path = ["_static"]
html_css_files = ["prompts.css"]
