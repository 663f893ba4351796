"""Wheels: one for each version of Python and architecture with the compiled modules, and a pure one for all others.

`python -m tools.wheels`, which `make wheel` calls, writes them and the source archive into `dist/`, checks each and
tries each that this machine can run. A compiler for both architectures and an old glibc comes from PyPI (ziglang), the
headers from the Pythons of this machine or from Debian's packages.
"""
