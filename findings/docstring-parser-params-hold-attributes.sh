#!/usr/bin/env bash
# What: docstring-parser's `Docstring.params` lists what stands under "Attributes:" as well as under "Args:".
# Versions: docstring-parser==0.18.0
# Expected: `params` holds the parameters, as its name and the "Args:" section say, so that a tool's schema
#   can take its descriptions from there; attributes are another section, with a place of their own.
# Seen: for a class with `Args: city` and `Attributes: city` (and `count`), params is
#   ['city', 'city', 'count'], and a dict by name gives city the text of the attribute.
# Matters: whoever builds the schema of a tool from a docstring shows the model the wrong description,
#   or a parameter that the tool does not have.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv docstring-parser==0.18.0
run <<'PYTHON'
from docstring_parser import parse

TEXT = """Look up the weather.

Args:
    city (str): Where to look.

Attributes:
    city (str): The last city asked for.
    count (int): How many calls were made.
"""
document = parse(TEXT)
names = [parameter.arg_name for parameter in document.params]
described = {parameter.arg_name: parameter.description for parameter in document.params}
print(names, described)
assert names == ["city", "city", "count"], f"params is {names} now"
assert described["city"] == "The last city asked for.", f"city is described by {described['city']!r} now"
PYTHON
