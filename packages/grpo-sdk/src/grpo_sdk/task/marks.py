r"""Where a completion states its answer: behind its thinking, in marks of four kinds.

A mark is an `<answer>` tag, a `\boxed{…}`, what follows `####` on its line, or, where none of these stands, what
follows "answer:" or "answer is". Of marks of one kind the last counts; marks joined by a comma, `and` or `or` are one
list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grpo_sdk.errors import UserError

_NAME = r"(?:think(?:ing)?|thought|seed:think)"
_THINKING = re.compile(
    # The ends: tags, Mistral, Gemma 4, gpt-oss, Cohere, Kimi.
    r"(?=[<\[◁])(?:"
    rf"(?P<end>(?:<\s{{0,4}}/\s{{0,4}}{_NAME}\s{{0,4}}>|\[/THINK\]|<channel\|>|<\|END_THINKING\|>|◁/think▷"
    r"|<\|channel\|>final(?:\s?<\|constrain\|>\w{0,16})?(?:<\|message\|>)?)\s*)"
    rf"|<\s{{0,4}}{_NAME}\s{{0,4}}>|\[THINK\]|<\|channel>thought|<\|channel\|>(?:analysis|commentary)"
    r"|<\|START_THINKING\|>|◁think▷)",
    re.IGNORECASE,
)
"""Where thinking begins and ends: DeepSeek, Qwen, GLM, MiniMax and Nemotron write `<think>`."""
_BEGINS = re.compile(r"<\s{0,4}[/|｜A-Za-z]|\[[/TEe]|◁|\]~b")
"""What every mark of thinking and of a turn begins with."""
_TURN_BEGINS = re.compile(
    r"\A(?:\s*(?:<\|im_start\|>assistant|<\|start\|>assistant|<\|header_start\|>assistant<\|header_end\|>"
    r"|<\|start_header_id\|>assistant<\|end_header_id\|>|<\|assistant\|>|<start_of_turn>model|<\|turn>model|\]~b\]ai|<s>"
    r"|<bos>|<\|START_OF_TURN_TOKEN\|>|<\|CHATBOT_TOKEN\|>|<\|START_RESPONSE\|>|<\|begin_of_box\|>))+"
)
END_TOKENS = (
    "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end|>",
    "<|return|>", "<|call|>", "<|EOT|>", "<end_of_turn>", "<turn|>", "<eos>", "</s>", "<｜end▁of▁sentence｜>", "[EOS]",
    "[e~[", "<|user|>", "<|observation|>", "<pad>", "<|END_RESPONSE|>", "<|END_OF_TURN_TOKEN|>", "<|end_of_box|>",
)  # fmt: skip
"""Tokens that end a completion of common models, where a text still holds them."""
_TURN_ENDS = re.compile(
    "|".join(
        map(
            re.escape,
            (*END_TOKENS, "<|im_start|>", "<|start|>", "<start_of_turn>", "<|turn>", "<|START_OF_TURN_TOKEN|>"),
        )
    )
)


def cut_at_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut a text right after the stop string that is complete first; the text keeps it. One in thinking ends nothing.

    Args:
        text: A completion, as samplers that do not end at the strings give it.
        stop: The strings.

    Returns:
        (text, whether a stop string was in it).
    """
    if not any(string in text for string in stop):
        return text, False
    marks = [*_THINKING.finditer(text)]
    for before, behind in zip([None, *marks], [*marks, None], strict=True):
        if (before is None or before["end"]) and (behind is None or not behind["end"]):  # the prompt may begin thinking
            span = before.end() if before else 0, behind.start() if behind else len(text)
            if ends := [at + len(string) for string in stop if (at := text.find(string, *span)) >= 0]:
                return text[: min(ends)], True
    return text, False


def after_prompt(prompt: str, query: str) -> str:
    """The completion in a query, which may have a token before the prompt, as some tokenizers add.

    Raises:
        UserError: the query does not contain the prompt.
    """
    start = query.find(prompt) if prompt else -1
    if start < 0:
        raise UserError(f"the query {query!r:.60} does not contain its prompt {prompt!r:.60}, so where does it end?")
    return query[start + len(prompt) :]


def strip_end_tokens(text: str, end_tokens: Sequence[str] = END_TOKENS) -> str:
    """Remove end tokens from the end of a text; white space goes with a token, and stays where there is none."""
    shortened = text
    while True:
        stripped = shortened.rstrip()
        token = next((token for token in end_tokens if stripped.endswith(token)), None)
        if token is None:
            return shortened
        shortened = stripped.removesuffix(token)


def thinking_marks(text: str) -> list[tuple[int, int, bool]]:
    """Where marks of thinking stand: (start, end, whether it ends thinking) of each, in order."""
    return [(*mark.span(), bool(mark["end"])) for mark in _THINKING.finditer(text)]


def first_thinking_end(text: str) -> int | None:
    """Where the first end of thinking begins; None without one."""
    return next((mark.start() for mark in _THINKING.finditer(text) if mark["end"]), None)


def outside_thinking(text: str) -> str:
    """What a completion says behind its thinking, up to the end of its turn.

    Thinking ends with the last end of it, also where the prompt began it. Thinking that does not end is no answer.

    Args:
        text: A completion, in which end tokens of common models may stand.
    """
    if _BEGINS.search(text) is None:
        return text
    ended = max((mark.end() for mark in _THINKING.finditer(text) if mark["end"]), default=0)
    text = _TURN_BEGINS.sub("", _THINKING.split(text[ended:], maxsplit=1)[0])
    return _TURN_ENDS.split(text, maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a mark holds, or several that are joined, and where they begin and end in the text."""

    contents: tuple[str, ...]
    start: int
    end: int


_TAG = re.compile(r"<(/?)answer(?:\s[^<>]{0,40})?>", re.IGNORECASE)


def tags(text: str) -> list[Mark]:
    """Closed tags, else the one that is left open at the end; one whose beginning the prompt holds counts too."""
    opened: re.Match[str] | None = None
    closed: list[Mark] = []
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag
        elif opened is not None:
            closed.append(Mark((text[opened.end() : tag.start()],), opened.start(), tag.end()))
            opened = None
        elif not closed:
            closed.append(Mark((text[: tag.start()],), 0, tag.end()))
    if not closed and opened is not None:
        return [Mark((text[opened.end() :],), opened.start(), len(text))]
    return closed


# Text that was escaped once too often has two backslashes.
_BOX_TOKEN = re.compile(r"\\{1,2}(?:boxed|fbox)\s{0,4}\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}([A-Za-z0-9])(?![A-Za-z0-9])")


def _boxes(text: str) -> list[Mark]:
    """Boxes whose braces are balanced, the outer ones of nested ones; one pass."""
    found = [place for name in ("\\boxed", "\\fbox") if (place := text.find(name)) >= 0]
    stack: list[re.Match[str] | None] = []  # a brace that is no box is None
    boxes: list[Mark] = []
    for token in _BOX_TOKEN.finditer(text, len(text[: min(found, default=len(text))].rstrip("\\"))):
        mark = token[0]
        if mark == "{":
            stack.append(None)
        elif mark == "}":
            if stack and (opened := stack.pop()) is not None:
                while boxes and boxes[-1].start > opened.start():
                    boxes.pop()
                boxes.append(Mark((text[opened.end() : token.start()],), opened.start(), token.end()))
        elif mark[-1] == "{" and len(mark) > 2:
            stack.append(token)
    return boxes or [Mark((bare[1],), *bare.span()) for bare in _BARE_BOX.finditer(text)]


_HASHES = re.compile(r"####+([^\n#]*)")


def _hashes(text: str) -> list[Mark]:
    return [Mark((match[1],), *match.span()) for match in _HASHES.finditer(text)]


_PHRASE = re.compile(
    r"(?:^|(?<=\n))[#*_ \t]{0,8}(?:(?:the|my|final|correct)\s){0,2}answer[*_ \t]{0,8}(?=\n|\$|\\[\[(])"  # a heading
    r"|\banswers?\b(?:[*_ \t)]{0,8}[:=]"
    r"|(?:(?:(?!\b(?:not|never|cannot|hardly)\b|n['’]t\b)[^\n.:=?]){0,60}?[^\n.:=?\w])?"
    r"(?:is|are|was|be|equals)\b[*_ \t]{0,4}:?)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(
    r"[.!?。](?=[\s*_\"'”’)]{0,4}(?:\s|$))(?<![ap]\.m\.)(?:(?<!\b[A-J]\.)|(?=\s*(?:$|[A-Za-z]{2})))|\n"
)
_BLOCKS = (("```", "```"), ("$$", "$$"), ("\\[", "\\]"))
_BEFORE_PHRASE = re.compile(
    r"(?:[,;]|\s{1,2}(?:and|or)\b)?\s{0,2}(?:\b(?:the|my|final|correct|so|thus|hence|therefore),?\s{1,2}){0,3}$"
)
_OPENING = re.compile(r"[*_]{0,3}[ \t\n]*\**[ \t]*")
"""What stands before the content of a phrase: the end of its emphasis, and the beginning of the content's."""
_PHRASE_CHARS = 300
"""Longest content of a phrase."""


def _phrases(text: str) -> list[Mark]:
    """What follows "answer:" or "answer is" up to the end of the sentence or line, or the block that follows."""
    found = list(_PHRASE.finditer(text)) if "answer" in text.lower() else []
    bounds = [match.start() for match in found[1:]]
    return [_phrase(text, match, bound) for match, bound in zip(found, [*bounds, len(text)], strict=False)]


def _phrase(text: str, phrase: re.Match[str], bound: int) -> Mark:
    start = min(bound, _OPENING.match(text, phrase.end()).end())  # type: ignore[union-attr]  # it matches nothing too
    for opening, closing in _BLOCKS:
        end = text.find(closing, start + len(opening)) if text.startswith(opening, start) else -1
        if end >= 0:
            inside = text[start + len(opening) : end]
            return Mark(
                (inside.partition("\n")[2] if opening == "```" else inside,), phrase.start(), end + len(closing)
            )
    line = text[start : min(bound, start + _PHRASE_CHARS)]
    ended = _SENTENCE_END.search(line)
    content = line if ended is None else line[: ended.start() + (ended[0] == "?")]  # a question states nothing
    if ended is None and len(line) == bound - start:  # the next phrase is part of the sentence
        content = content[: _BEFORE_PHRASE.search(content).start()]  # type: ignore[union-attr]  # it matches nothing too
    return Mark((content.rstrip("* \t"),), phrase.start(), start + len(content))


_FINDERS: Mapping[str, Callable[[str], list[Mark]]] = {"tag": tags, "box": _boxes, "####": _hashes}
MAX_JOINED = 8
"""Most marks of a list."""
MAX_BETWEEN = 64
"""Most characters between two marks of a list."""
MAX_NESTING = 4
"""Marks inside marks that are followed."""
_LATEX_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mbox|math(?:rm|bf))\s?\{([^{}]{0,1000})\}")
_LAYOUT = re.compile(r"\\[()\[\]]|\\q?quad|\\[,; ]|[$*~]")
_JOINT = re.compile(
    r"[\s.]*(?:,|;|,?\s?\b(?:and|or)\b)\s*(?:(?:the|my|final|correct)\s*)*"
    r"(?:[A-Za-z](?:_\{?\w{1,3}\}?)?\s?=\s*)?"
)
_NAMED = re.compile(r"([A-Za-z](?:_\{?\w{1,3}\}?)?)\s?=\s*[$\\(\[]{0,2}$")


def mark_of(template: str) -> str:
    """The kind of the mark that a prompt asks for; empty where it asks for none.

    "Answer:" at its end is no mark: the completion follows it.
    """
    named = (("tag", "<answer>"), ("box", "\\boxed"), ("####", "####"), ("answer:", "answer: "))
    return next((kind for kind, name in named if name in template.lower()), "")


_ALTERNATIVE = re.compile(r"\bor\b[\s$]*\0|\0[\s$]*(?:,?\s?or\b|(?:[,;/|]|,?\s?and\b)[\s$]*[-\d])", re.IGNORECASE)
"""Another answer beside a mark, `\0`, inside a mark."""
_INNER = "\ufffc"
"""Stands for the characters of a mark that was read."""


def marked_answers(text: str, kind: str = "", depth: int = 0) -> dict[str, Mark]:
    """Contents of the last mark of each kind, with those of the marks that it is joined to; marks inside are followed.

    Args:
        text: What a completion says outside its thinking.
        kind: The only kind that counts; by default each that stands there, "answer:" only where no other does.
        depth: Marks around the text.

    Returns:
        Kind -> its answer, of several contents where the marks are a list; no kind without a mark.
    """
    answers: dict[str, Mark] = {}
    if not any(sign in text for sign in "<\\#") and "answer" not in text.lower():
        return answers
    rest = text
    for name, find in _FINDERS.items():
        marks = [mark for mark in find(rest) if _INNER not in mark.contents[0]] if kind in ("", name) else []
        if marks:
            answers[name] = _last_list(rest, marks, depth)
            rest = _without(rest, marks)
    phrases = [] if answers or kind not in ("", "answer:") else _phrases(text)
    # Inside a mark it begins the content: "twice the answer = 5" says no 5.
    phrases = [
        mark for mark in phrases if not depth or _BEFORE_PHRASE.fullmatch(text[: mark.start].lower().lstrip(" *_$\n"))
    ]
    if phrases:
        answers["answer:"] = _last_list(text, phrases, depth)
    return answers


def _without(text: str, marks: list[Mark]) -> str:
    """The text, as long as it was, without its marks."""
    pieces, position = [], 0
    for mark in marks:
        pieces += [text[position : mark.start], _INNER * (mark.end - mark.start)]
        position = mark.end
    return "".join((*pieces, text[position:]))


def _last_list(text: str, marks: list[Mark], depth: int) -> Mark:
    """Contents of the last mark and those that it is joined to, each once, with their names where they have some."""
    joined = [marks[-1]]
    for mark in marks[-2 : -MAX_JOINED - 1 : -1]:
        between = text[mark.end : joined[-1].start]
        is_beside = text[mark.start] == "\\" and not between.strip(" \t")
        if len(between) >= MAX_BETWEEN or not (is_beside or _JOINT.fullmatch(_LAYOUT.sub(" ", plain_latex(between)))):
            break
        joined.append(mark)
    contents = [_followed(mark.contents[0], depth) for mark in reversed(joined)]
    if len(joined) > 1:
        names = [_NAMED.search(text[max(0, mark.start - 16) : mark.start]) for mark in reversed(joined)]
        contents = [
            f"{name[1]} = {content}" if name and "=" not in content else content
            for name, content in zip(names, contents, strict=True)
        ]
    return Mark(tuple(dict.fromkeys(contents)), joined[-1].start, joined[0].end)


def plain_latex(text: str) -> str:
    r"""The text without `\text{…}` and the like around words."""
    return _LATEX_TEXT.sub(r"\1", text) if "\\" in text else text


def _followed(content: str, depth: int) -> str:
    plain = plain_latex(content)
    inner = next(iter(marked_answers(plain, depth=depth + 1).values()), None) if depth < MAX_NESTING else None
    if inner is None:
        return content
    before, behind, answer = plain[: inner.start], plain[inner.end :], ", ".join(inner.contents)
    is_one = _ALTERNATIVE.search(f"{before[-MAX_BETWEEN:]}\0{behind[:MAX_BETWEEN]}") is None
    return answer if is_one else f"{before}{answer}{behind}"
