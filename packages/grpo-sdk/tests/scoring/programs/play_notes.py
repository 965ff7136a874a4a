"""Begin an episode of notes_tasks.py:NOTES that has started a process, and wait."""

import json
import sys
import time

from grpo_sdk import Scorer
from grpo_sdk.task.row import Row
from grpo_sdk.task.tools.calls import Reading, ToolCall

if __name__ == "__main__":
    with Scorer(f"{sys.argv[1]}:NOTES", workers=1, tool_workers=1) as scorer:
        session = scorer.session(Row(id="1"))
        session.begin().result()
        state = session.answer((), "", Reading("", calls=(ToolCall("stray", {}),)), "").result()
        print(json.dumps({"child": state.moves[-1].calls[0].result}), flush=True)
        session.answer(state.moves, "", Reading("", calls=(ToolCall("hang", {}),)), "")
        time.sleep(600)
