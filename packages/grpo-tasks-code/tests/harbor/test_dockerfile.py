import pytest

from grpo_tasks_code.harbor.folders import read_dockerfile


def test_folder_files_and_variables() -> None:
    image = read_dockerfile(
        "# syntax\nFROM python:3.13-slim\nLABEL a=b\nWORKDIR /app\nWORKDIR src\nENV A=1 B='two words'\n"
        "ENV C three four\n\n"
        'COPY --chown=user a.txt \\\n  b.txt ./\nCOPY ["c d", "/data/x"]\nCMD ["bash"]\n'
    )
    assert image.workdir == "/app/src"
    assert image.variables == {"A": "1", "B": "two words", "C": "three four"}
    assert image.copies == [("a.txt", "/app/src", True), ("b.txt", "/app/src", True), ("c d", "/data/x", False)]
    assert image.refused == []


@pytest.mark.parametrize("line", [
    "RUN apt-get update",
    "COPY --from=ghcr.io/astral-sh/uv:0.9.7 /uv /usr/local/bin/uv",
    "ADD https://example.org/x.tar.gz /app/",
    "COPY <<EOF /app/x",
    "COPY",
    "WORKDIR $HOME",
    "ENV PATH=/app/bin:$PATH",
    'ENTRYPOINT ["server"]',
    "USER agent",
    "run true",
])  # fmt: skip
def test_what_needs_a_container_engine_is_refused_by_name(line: str) -> None:
    assert read_dockerfile(f"FROM ubuntu\n{line}\n").refused == [line]


def test_stages_are_refused_and_a_quote_that_does_not_end_is_an_error() -> None:
    assert read_dockerfile("FROM a\nFROM b\n").refused == ["2 FROM instructions"]
    with pytest.raises(ValueError, match="'ENV A=\"b': No closing quotation"):
        read_dockerfile('FROM a\nENV A="b\n')
