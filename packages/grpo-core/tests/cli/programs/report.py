"""Runs command lines in one process: {name: words} on stdin -> what each printed and imported, on stdout."""

import contextlib
import io
import json
import sys

from grpo_sdk.cli.main import main

reports = {}
for name, words in json.load(sys.stdin).items():
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(words)
    modules = {module: module in sys.modules for module in ("torch", "transformers")}
    reports[name] = {"code": code, "stdout": out.getvalue(), "stderr": error.getvalue(), **modules}
json.dump(reports, sys.stdout)
