"""A toolset of verifiers that all episodes share; verifiers starts its module."""

import verifiers.v1 as vf


class Sums(vf.Toolset[vf.SharedToolsetConfig]):
    TOOL_PREFIX = None

    @vf.tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


if __name__ == "__main__":
    Sums.run()
