"""The page of a report: one HTML file with its data, style, script and charts, which loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata, resources
from string import Template
from typing import Any

import orjson

from grpo_sdk.errors import UserError
from grpo_sdk.files import replace_file
from grpo_sdk.plugins.folders import cache_folder

VEGA_LITE = "6.4"
"""Version of Vega-Lite in the page, of those that vl-convert-python brings."""

SCRIPTS = ("text.js", "charts.js", "sections.js", "browser.js", "page.js")
"""Our scripts, in their order."""


def page(data: Mapping[str, Any], *, is_live: bool = False) -> str:
    """Return a report as HTML.

    A policy in the page lets the browser run these scripts alone and load nothing; a live page may ask its server for
    new data. Data is JSON in an element that is never run, in which `<` is escaped.

    Args:
        data: What `report_data` returned.
        is_live: Whether the page asks its server for new data.

    Raises:
        UserError: vl-convert-python, which brings the charts, is not installed.
    """
    style, script, charts = _file("page.css"), _alone("\n".join(map(_file, SCRIPTS))), _alone(chart_library())
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(charts)} {_hash(script)}",
            "style-src 'unsafe-inline'",  # charts set the style of their elements
            "img-src data:",
            "connect-src 'self'" if is_live else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    names = ", ".join(run["name"] for run in data["runs"])
    return Template(_file("page.html")).substitute(
        policy=policy,  # it holds no quotation mark
        title=html.escape(f"{names} · grpo report"),
        style=style,
        charts=charts,
        script=script,
        live="true" if is_live else "false",
        data=embedded(data),
    )


def embedded(data: Mapping[str, Any]) -> str:
    """Return data as JSON that ends no element: `<` cannot stand in it."""
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY).decode().replace("<", "\\u003c")


def chart_library() -> str:
    """Return Vega-Lite with vega-embed as one script; it is made once for each version and kept in the cache.

    Raises:
        UserError: vl-convert-python is not installed.
    """
    try:
        version = metadata.version("vl-convert-python")
        import vl_convert
    except (metadata.PackageNotFoundError, ImportError):
        raise UserError(
            "grpo report needs the package vl-convert-python for its charts, which is not installed: "
            "pip install 'grpo-core[report]'"
        ) from None
    kept = cache_folder() / "report" / f"vega-lite-{VEGA_LITE}-of-vl-convert-{version}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")  # it ends no element of the page
    with suppress(OSError):  # a cache that cannot be written costs seconds and nothing else
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, script.encode())
    return script


def _alone(script: str) -> str:
    """Return a script whose names are its own."""
    return f"(() => {{\n{script}\n}})();"


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return resources.files("grpo_core.report").joinpath(name).read_text(encoding="utf-8")
