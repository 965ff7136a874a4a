"""HTTP servers: a bounded one for any application, and `grpo serve`, which offers tasks to other trainers.

Plugins may use the names below; they need `pip install 'grpo-sdk[serve]'`, or starlette and uvicorn.
"""

from grpo_sdk.serve.bounded import BoundedServer, Certificate, clean_token, is_loopback, read_token
from grpo_sdk.serve.guard import JSON, Access, Bounds

__all__ = [
    "JSON",
    "Access",
    "BoundedServer",
    "Bounds",
    "Certificate",
    "clean_token",
    "is_loopback",
    "read_token",
]
