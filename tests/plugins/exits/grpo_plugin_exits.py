"""A plugin that ends the process when it is imported."""

raise SystemExit("this plugin needs a licence")
