#!/usr/bin/env bash
# What: in tokenizers, `encode_special_tokens = True` makes special tokens in a text ordinary text, and False, the
#   default, makes them special tokens.
# Versions: tokenizers==0.23.3
# Expected: with True the text `<end>` is encoded as the special token, as the name says, and with False it is not.
# Seen: `x<end>y` gives ['x', '<end>', 'y'] by default, and ['x', '<', 'e', 'n', 'd', '>', 'y'] with True.
#   transformers' name for it, split_special_tokens, says the same the right way round.
# Matters: who sets it to False so that a user's or tool's text can't write control tokens leaves them on, and a
#   policy can end turns from inside a tool's result.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv tokenizers==0.23.3
run <<'PYTHON'
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=260, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False)
tokenizer.train_from_iterator(["x y"], trainer)
seen = {}
for value in (False, True):
    tokenizer.encode_special_tokens = value
    seen[value] = tokenizer.encode("x<end>y").tokens
print(seen)
assert seen[False] == ["x", "<end>", "y"], f"False gives {seen[False]} now"
assert seen[True] == ["x", "<", "e", "n", "d", ">", "y"], f"True gives {seen[True]} now"
PYTHON
