"""Code that runs in the calling process: `Sandbox`, pools of servers, jobs, and the plans of tests."""
