"""A plugin whose own dependency is not installed."""

import a_package_that_nobody_installed  # noqa: F401 # the import error is what this plugin is for
