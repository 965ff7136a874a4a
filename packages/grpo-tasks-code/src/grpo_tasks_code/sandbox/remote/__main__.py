"""Serve this machine's sandbox."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grpo_sdk import UserError
from grpo_tasks_code.sandbox.errors import SandboxUnavailableError
from grpo_tasks_code.sandbox.host.local import Sandbox
from grpo_tasks_code.sandbox.remote.client import TOKEN_VARIABLE

WARNING = (
    "warning: the token and the programs travel unencrypted; give --ssl-certfile, or listen on 127.0.0.1 behind a "
    "reverse proxy."
)


def main() -> None:
    """Serve this machine's sandbox; exit codes are those of `grpo`."""
    try:
        from grpo_sdk.serve import Certificate, is_loopback, read_token
        from grpo_tasks_code.sandbox.remote.server import DEFAULT_PORT, SandboxServer
    except ModuleNotFoundError as error:
        sys.exit(f"error: the server needs {error.name}: pip install 'grpo-tasks-code[remote]'.")
    parser = argparse.ArgumentParser(
        prog="python -m grpo_tasks_code.sandbox.remote", description="Offer this machine's sandbox over HTTP."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="(%(default)s)")
    parser.add_argument("--workers", type=int, help="programs at once (one per core, up to 16)")
    parser.add_argument("--token-file", type=Path, help=f"file of the token, in place of {TOKEN_VARIABLE}")
    parser.add_argument("--ssl-certfile", type=Path, help="serve https with this certificate (PEM)")
    parser.add_argument("--ssl-keyfile", type=Path, help="its private key, unless that is in the same file")
    arguments = parser.parse_args()
    try:
        if arguments.ssl_keyfile and not arguments.ssl_certfile:
            raise UserError("--ssl-keyfile needs --ssl-certfile.")
        certificate = Certificate(arguments.ssl_certfile, arguments.ssl_keyfile) if arguments.ssl_certfile else None
        token = read_token(arguments.token_file, TOKEN_VARIABLE)
        with (
            Sandbox(workers=arguments.workers) as sandbox,
            SandboxServer(sandbox, token, host=arguments.host, port=arguments.port, certificate=certificate) as server,
        ):
            print(f"{sandbox.level.name} {sandbox.level.title}: {sandbox.level.guarantee}", file=sys.stderr)
            if certificate is None and not is_loopback(arguments.host):
                print(WARNING, file=sys.stderr)
            print(f"listening on {server.address}", file=sys.stderr)
            server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(130)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except SandboxUnavailableError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
