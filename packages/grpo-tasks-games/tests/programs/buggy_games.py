"""Games with a bug each."""

from dataclasses import replace

from test_best_response import heap


def raising(state, action):
    raise RuntimeError("boom at depth")


raises = replace(heap(3), name="raises", apply=raising)
alike = replace(heap(3), name="alike", write=lambda action: "1")
nobody = replace(heap(3), name="nobody", to_move=lambda at: "z")
stuck = replace(heap(3), name="stuck", legal=lambda at: [])
