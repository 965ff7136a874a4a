"""What runs in the calling process: `Sandbox`, its pool of servers, the run of a program, and the plan of its tests."""
