#!/usr/bin/env bash
# What: the reward of a step in textworld.gym is the score so far, not what the step earned.
# Versions: textworld==1.7.0
# Expected: step returns the points of this step, as in the Gym interface it has, so that their sum is the score.
# Seen: a game of 3 points in 6 steps: rewards 0, 1, 1, 1, 2, 3, sum 8; a step after the end pays 3 again, and
#   doesn't raise.
# Matters: a return as sum of rewards grows with the time spent after a point, so dawdling is paid more than winning
#   fast; a wrapper for language models that adds up rewards trains on that.
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
environment = textworld.gym.make(textworld.gym.register_game(path, textworld.EnvInfos(score=True, max_score=True)))
environment.reset()
steps = [environment.step(command) for command in plan]
rewards, scores = [step[1] for step in steps], [step[3]["score"] for step in steps]
after = environment.step("look")
print("rewards:", rewards, "scores:", scores, "after the end:", after[1:])
assert rewards == scores, f"rewards are {rewards} for the scores {scores} now"
assert sum(rewards) > steps[-1][3]["max_score"] == 3, f"the sum is {sum(rewards)} now"
assert after[1] == 3 and after[2], f"a step after the end gives {after[1:]} now"
PYTHON
