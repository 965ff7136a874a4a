"""Code that runs in the processes of the sandbox: the server, its children, and their confinement.

These processes start without site packages: this folder imports only the standard library and itself.
"""
