#!/usr/bin/env bash
# What: TextWorld carries out several commands of one line, but scores only the first, so a game can be won with
#   reward 0.
# Versions: textworld==1.7.0
# Expected: one step takes one command, and the rest is refused; or all are carried out and the points of all counted.
# Seen: a game of 3 points, its walkthrough joined by `. ` in one step: done is True, won is True, reward and
#   score are 0, moves 1, while the game's own text says "You scored 3 out of a possible 3". Step by step: score 3.
# Matters: a policy that writes its plan in one line is right and gets nothing, and `won` and the reward contradict
#   each other in the same record.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv textworld==1.7.0
run <<'PYTHON'
import textworld
import textworld.gym

options = textworld.GameOptions()
options.nb_rooms, options.nb_objects, options.nb_parallel_quests, options.quest_length = 3, 8, 3, 2
options.seeds, options.path = 3, "games/game.z8"
path, game = textworld.make(options)
plan = list(game.walkthrough)
wanted = textworld.EnvInfos(score=True, won=True, moves=True, max_score=True)
environment = textworld.gym.make(textworld.gym.register_game(path, wanted))

environment.reset()
for command in plan:
    _, reward, done, steps = environment.step(command)
environment.reset()
text, at_once, ended, line = environment.step(". ".join(plan))
print("step by step:", reward, done, steps)
print("in one line: ", at_once, ended, line, [each for each in text.splitlines() if "You scored" in each])
assert steps["score"] == 3 and steps["won"], f"step by step gives {steps} now"
assert ended and line["won"] and line["score"] == 0 and at_once == 0, f"one line gives {at_once}, {line} now"
assert "scored 3 out of a possible 3" in text, "the game's text is another now"
PYTHON
