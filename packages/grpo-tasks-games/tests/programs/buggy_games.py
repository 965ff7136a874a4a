"""Games with a bug each."""

from dataclasses import replace

from small_games import HEAP


def raising(state, action):
    raise RuntimeError("boom at depth")


raises = replace(HEAP, name="raises", apply=raising)
alike = replace(HEAP, name="alike", write=lambda action: "1")
nobody = replace(HEAP, name="nobody", to_move=lambda at: "z")
stuck = replace(HEAP, name="stuck", legal=lambda at: [])
