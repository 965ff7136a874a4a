#!/usr/bin/env bash
# What: Atropos' ManagedServer gives, for a chat of two turns, a sequence with the end token twice between an answer
#   and the next message: once as it was sampled, once as the chat template writes it.
# Versions: atroposlib==0.4.0, transformers==5.24.0, openai==2.54.0
# Expected: the tokens of a chat are those of its chat template, as it is tracked for training and its second turn
#   extends the first one's tokens so that they need not be made anew.
# Seen: with a ChatML template and an engine that returns its end token (as vLLM and SGLang do):
#   ... yes <|im_end|> <|im_end|> \n <|im_start|> user ..., where the template has one; the engine gets these ids as
#   the prompt of the second turn as well.
# Matters: every turn but the first is sampled behind, and trained on, a text that no template writes; log-probabilities
#   differ from those of the served model.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# The class needs none of the rest that atroposlib brings (wandb, datasets, ...).
venv transformers==5.24.0 openai==2.54.0 jinja2 numpy tenacity pydantic aiohttp
"$work/venv/bin/python" -m pip install --quiet --no-deps atroposlib==0.4.0 || exit 75
run <<'PYTHON'
import asyncio
from types import SimpleNamespace

from atroposlib.envs.server_handling.managed_server import ManagedServer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
words = ["user", "assistant", "hello", "again", "yes", "\n", "<unk>"]
inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
inner.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token=END)
tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
tokenizer.chat_template = TEMPLATE
ANSWER = tokenizer.encode(f"yes{END}", add_special_tokens=False)


class Engine:
    """Answers each prompt with "yes" and the end token."""

    config = SimpleNamespace(model_name="engine")
    prompts = []

    async def tokens_and_logprobs_completion(self, prompt, input_ids, **options):
        self.prompts.append(input_ids)
        return input_ids, [ANSWER], [[-0.1] * len(ANSWER)], ["stop"]


async def main():
    server = ManagedServer(Engine(), tokenizer=tokenizer)
    messages = [{"role": "user", "content": "hello"}]
    for _ in range(2):
        answer = await server.chat_completion(messages=messages)
        messages += [{"role": "assistant", "content": answer.choices[0].message.content}]
        messages += [{"role": "user", "content": "again"}]
    (node,) = server.get_state()["nodes"]
    return messages[:3], tokenizer.convert_ids_to_tokens(node.tokens)


messages, tokens = asyncio.run(main())
text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
template = tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))
print("trained: ", tokens)
print("template:", [*template, "yes", END])
assert [*template, "yes", END].count(END) == 4 and messages[1]["content"] == "yes"
twice = [place for place, pair in enumerate(zip(tokens, tokens[1:])) if pair == (END, END)]
assert len(twice) == 1, f"the end token is twice in {len(twice)} places now"
assert twice[0] == template.index("yes") + 1 and tokens.count(END) == 5
PYTHON
