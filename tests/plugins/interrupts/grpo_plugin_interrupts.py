"""A plugin that interrupts the process that imports it."""

raise KeyboardInterrupt
