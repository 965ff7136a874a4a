"""Run programs on another machine: an HTTP client of a sandbox, and the server.

    GRPO_SANDBOX_TOKEN=… python -m grpo_tasks_code.sandbox.remote --host 0.0.0.0 --port 8700
    GRPO_SANDBOX_TOKEN=… GRPO_SANDBOX_URL=http://…:8700 grpo run --task code.mbpp

The server, `remote.server.SandboxServer`, needs `pip install 'grpo-tasks-code[remote]'`; the client does not. For a
provider with an interface of its own, derive a class from `Executor`: `workers`, `level`, `run`, `run_tests`.
"""

from grpo_tasks_code.sandbox.remote.client import HttpExecutor

__all__ = ["HttpExecutor"]
