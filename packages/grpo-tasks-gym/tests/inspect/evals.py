"""Tasks of inspect-ai that are used, and refused, in tests."""

import os
import random
import signal
import time

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample, example_dataset
from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, GenerateConfig, get_model
from inspect_ai.scorer import Score, accuracy, choice, includes, match, mean, model_graded_qa, scorer
from inspect_ai.solver import (
    basic_agent,
    generate,
    multiple_choice,
    prompt_template,
    self_critique,
    solver,
    system_message,
    use_tools,
)
from inspect_ai.tool import ContentImage, ToolError, tool
from inspect_ai.util import store


@task
def sums(count: int = 30):
    samples = [Sample(input=f"what is {number}+1?", target=str(number + 1)) for number in range(count)]
    solvers = [system_message("You are terse."), prompt_template("Q: {prompt}\nA:"), generate()]
    config = GenerateConfig(temperature=0.5, max_tokens=64, stop_seqs=["\n"])
    return Task(samples, solver=solvers, scorer=[match(), includes()], epochs=3, config=config)


@task
def capitals():
    cities = ["Rome", "Paris", "Oslo"]
    letters = {"Italy": "A", "France": "B", "Norway": "C"}
    samples = [Sample(input=f"Capital of {place}?", choices=cities, target=letters[place]) for place in letters]
    return Task(samples, solver=multiple_choice(), scorer=choice())


@task
def shuffled():
    samples = [Sample(input="Largest?", choices=["1", "22", "333", "4444"], target="D")]

    @solver
    def mixed():
        async def solve(state, generate):
            state.choices.shuffle(random.Random(random.random()))
            return state

        return solve

    return Task(samples, solver=[mixed(), multiple_choice()], scorer=choice())


@task
def few_shot():
    messages = [
        ChatMessageSystem(content="Continue."),
        ChatMessageUser(content="1 2"),
        ChatMessageAssistant(content="3"),
        ChatMessageUser(content="4 5"),
    ]
    return Task([Sample(input=messages, target="6", id="four")], scorer=match())


@scorer(metrics=[accuracy()])
def moody():
    async def score(state, target):
        text = state.output.completion
        match text:
            case "hang":
                time.sleep(1000)
            case "raise":
                raise RuntimeError("no luck")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "ask":
                await get_model().generate("Is it right?")
            case "none":
                return None
            case "unscored":
                return Score.unscored(reason="grader_failed", explanation="who knows")
        values = {"big": 7, "odd": "fine", "dict": {"a": 1}, "half": "P", "blank": "N", "true": True, "third": "0.3"}
        return Score(value=values.get(text, "C" if text == target.text else "I"))

    return score


@task
def moods():
    return Task([Sample(input="say yes", target="yes", id=f"r{number}") for number in range(3)], scorer=moody())


@scorer(metrics={"*": [mean()]})
def several():
    async def score(state, target):
        return Score(value={"exact": state.output.completion == target.text, "short": len(state.output.completion) < 9})

    return score


@scorer(metrics={"left": [mean()], "right": [mean()]})
def named():
    async def score(state, target):
        return None if state.output.completion.strip() == target.text else Score(value={"left": 1, "right": 0.5})

    return score


@task
def manifold():
    return Task([Sample(input="say yes", target="yes", metadata={"key": 1})], scorer=[several(), match(), match()])


@task
def keyed():
    return Task([Sample(input="say yes", target="yes")], scorer=named())


@task
def misprinted():
    targets = ["two", "4", "6"]
    return Task([Sample(input=f"2 * {n}?", target=targets[n - 1], id=f"r{n}") for n in (1, 2, 3)], scorer=digits())


@task
def hopeless():
    return Task([Sample(input="2 * 1?", target="two")], scorer=digits())


@scorer(metrics=[accuracy()])
def digits():
    async def score(state, target):
        text = state.output.completion
        return Score(value="C" if text.isdecimal() and text == target.text else "I")

    return score


@task
def graded():
    return Task(example_dataset("security_guide"), scorer=model_graded_qa())


@task
def critical():
    return Task([Sample(input="say yes", target="yes")], solver=[generate(), self_critique()], scorer=match())


@task
def twice():
    return Task([Sample(input="say yes", target="yes")], solver=[generate(), generate()], scorer=match())


@tool
def look():
    async def execute(place: int, kind: str = "word"):
        """Look at a place.

        Args:
            place: Its number.
            kind: What to look for.
        """
        store().set("looks", store().get("looks", 0) + 1)
        match place:
            case 5:
                raise ToolError("there is no place 5")
            case 6:
                raise TimeoutError("too late")
            case 7:
                raise ZeroDivisionError("a bug")
            case 8:
                time.sleep(1000)
            case 9:
                return ContentImage(image="data:image/png;base64,cG5n")
        return f"{kind} w{place}"

    return execute


@scorer(metrics=[accuracy()])
def few_looks():
    async def score(state, target):
        said = sum(len(message.tool_calls or []) for message in state.messages if message.role == "assistant")
        return Score(value={"looks": state.store.get("looks", 0), "said": said})

    return score


def places():
    return [Sample(input=f"What is at {place}?", target=f"w{place}", id=f"place {place}") for place in range(5)]


@task
def looking():
    return Task(
        places(), solver=[system_message("Look."), use_tools(look()), generate()], scorer=[includes(), few_looks()]
    )


@task
def agent(attempts: int = 1):
    return Task(places(), solver=react(tools=[look()], attempts=attempts), scorer=[includes(), few_looks()])


@task
def basic():
    return Task(places(), solver=basic_agent(tools=[look()], message_limit=20), scorer=[includes(), few_looks()])


@task
def approved():
    return Task(places(), solver=[use_tools(look()), generate()], scorer=includes(), approval="human")


@task
def boxed():
    return Task([Sample(input="say yes", target="yes")], scorer=match(), sandbox="docker")


@task
def silent():
    return Task([Sample(input="say yes", target="yes")], solver=system_message("hush"), scorer=match())


@task
def unscored():
    return Task([Sample(input="say yes", target="yes")])


@solver
def moment():
    async def solve(state, generate):
        state.user_prompt.text = f"{time.time_ns()}"
        return await generate(state)

    return solve


@task
def fickle():
    return Task([Sample(input="say yes", target="yes")], solver=moment(), scorer=match())


@scorer(metrics=[accuracy()])
def intolerant():
    async def score(state, target):
        if state.output.completion != target.text:
            os.kill(os.getpid(), signal.SIGKILL)
        return Score(value="C")

    return score


@task
def fatal():
    return Task([Sample(input="say yes", target="yes")], scorer=intolerant())
