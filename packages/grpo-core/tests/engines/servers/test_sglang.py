"""SGLang behind a stand-in with its requests; what its engine shares with vLLM's is tested in test_vllm."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from server_engines import MODEL, TOKENIZER, adapted, ids, request, run
from sglang_server import FakeSGLang, generated, native_answers
from torch import nn
from vllm_server import EOS, SEVEN, serving

from grpo_core.engines.base import Engine, Sampling
from grpo_core.engines.completion import Completion
from grpo_core.engines.native import NativeEngine
from grpo_core.engines.servers.engine import ServerEngine
from grpo_core.engines.servers.sglang import open_sglang
from grpo_core.errors import EngineError, NonFiniteError, UserError
from grpo_core.policy.fresh import fresh_model

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def fake() -> Iterator[FakeSGLang]:
    with serving(FakeSGLang()) as server:
        yield server


def opened(fake: FakeSGLang, model: Any = MODEL, **options: Any) -> ServerEngine:
    options = {"max_batch_tokens": 1024, "precision": "float32", "url": fake.url, **options}
    return open_sglang(model, TOKENIZER, **options)


def test_completions_carry_tokens_log_probs_text_and_the_version(fake: FakeSGLang) -> None:
    engine = opened(fake)
    engine.sync(5)
    (completion,) = run(engine, [request()])
    assert completion == Completion((SEVEN, EOS), (-1.0, -1.0), "7", "stop", 5)
    assert isinstance(engine, Engine)


def test_a_request_leaves_nothing_to_the_servers_defaults(fake: FakeSGLang) -> None:
    sampling = Sampling(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, max_completion_length=8)
    run(opened(fake), [request(stop=("\n",), max_completion_length=4)], sampling)
    run(opened(fake), [request()], Sampling(temperature=0.0))
    body, greedy = fake.completions()
    seed = body["sampling_params"].pop("sampling_seed")
    assert 0 <= seed < 2**63
    assert "sampling_seed" not in greedy["sampling_params"]
    assert greedy["sampling_params"]["top_k"] == -1  # all
    assert body == {
        "input_ids": ids("1 + 1 ="), "return_logprob": True, "logprob_start_len": -1, "stream": False,
        "sampling_params": {
            "max_new_tokens": 4, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1,
            "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_new_tokens": 0,
            "stop": ["\n"], "stop_token_ids": [EOS], "ignore_eos": False, "no_stop_trim": True,
            "skip_special_tokens": False,
        },
    }  # fmt: skip


def test_log_probs_are_known_for_any_temperature_and_filter(fake: FakeSGLang) -> None:
    sampling = Sampling(temperature=0.7, top_p=0.9)
    assert run(opened(fake), [request()], sampling)[0].logprobs == (-1.0, -1.0)


def test_the_header_says_where_seeds_have_no_effect(fake: FakeSGLang) -> None:
    assert "seeds of requests have no effect" in opened(fake).description
    fake.info["enable_deterministic_inference"] = True
    assert "seeds" not in opened(fake).description


def test_a_completion_that_fills_the_context_is_not_cut_short_by_the_server(fake: FakeSGLang) -> None:
    """SGLang keeps two tokens of its context free: what does not fit is refused, not cut."""
    fake.respond = lambda server, body: generated([SEVEN] * body["sampling_params"]["max_new_tokens"], finish="length")
    engine = opened(fake)
    (completion,) = run(engine, [request("x" * 500)], Sampling(max_completion_length=10))
    assert len(completion.token_ids) == 10
    with pytest.raises(UserError, match=r"prompt 500 .* 11 = 511 tokens, 1 more than 510, the server"):
        engine.generate([request("x" * 500)], Sampling(max_completion_length=11))


def test_after_an_update_greedy_completions_are_the_trainers() -> None:
    model = fresh_model("tiny", 3)[0]
    requests, greedy = [request("abc"), request("d"), request("efghi")], Sampling(0.0, max_completion_length=12)
    with serving(native_answers(TOKENIZER)) as fake:
        engine = opened(fake, model)
        before = run(engine, requests, greedy)
        with torch.no_grad():
            for parameter in model.parameters():
                nn.init.normal_(parameter, std=0.3)
        engine.sync(1)
        after = run(engine, requests, greedy)
        native = run(NativeEngine(model, TOKENIZER, version=1), requests, greedy)
        assert [each.token_ids for each in after] == [each.token_ids for each in native]
        assert [each.token_ids for each in after] != [each.token_ids for each in before]
        assert [each.text for each in after] == [each.text for each in native]
        ours, theirs = ([value for each in found for value in each.logprobs] for found in (native, after))
        assert theirs == pytest.approx(ours, abs=1e-5)
        assert len(fake.loaded) == 2
        assert fake.version.endswith("-1")
        assert not Path(fake.folder).exists()


def test_a_completion_of_other_weights_is_noticed(fake: FakeSGLang) -> None:
    engine = opened(fake)
    engine.sync(1)

    def respond(server: FakeSGLang, body: dict[str, Any]) -> dict[str, Any]:
        reply = generated([EOS])
        reply["meta_info"]["weight_version"] = "default"  # restarted while it sampled
        return reply

    fake.respond = respond
    with pytest.raises(EngineError, match=r"has weights of version 'default' and not 'grpo-\w+-1': it was restarted"):
        run(engine, [request()])


def test_an_adapter_is_sent_as_an_adapter_under_a_new_name() -> None:
    with serving(FakeSGLang(info={"enable_lora": True})) as fake:
        engine = opened(fake, adapted())
        for version in (1, 2):
            engine.sync(version)
            run(engine, [request()])
        first, second = (body["lora_path"] for body in fake.completions())
        assert first != second
        assert list(fake.adapters) == [second]
        assert all("adapter_model.safetensors" in files for files in fake.loaded)
        assert "/update_weights_from_disk" not in fake.paths()
        fake.adapters.clear()  # as after a restart
        with pytest.raises(EngineError, match="not loaded"):
            run(engine, [request()])


def test_servers_that_cannot_do_what_is_needed_are_refused(fake: FakeSGLang) -> None:
    with pytest.raises(
        UserError, match="start it with --enable-lora --max-lora-rank 4 --lora-target-modules q_proj v_proj"
    ):
        opened(fake, adapted())
    with pytest.raises(UserError, match="start it with --enable-memory-saver"):
        opened(fake, sleep=True)
    fake.info |= {"enable_lora": True, "enable_memory_saver": True}
    with pytest.raises(UserError, match="would lose the base; start it with --enable-weights-cpu-backup"):
        opened(fake, adapted(), sleep=True)
    with pytest.raises(UserError, match="are of a server that is started here"):
        opened(fake, options="--mem-fraction-static 0.5")
    fake.version = ""
    with pytest.raises(UserError, match="does not number its weights"):
        opened(fake)


def test_sleep_frees_memory_between_phases_and_weights_are_sent_before_the_cache_wakes(fake: FakeSGLang) -> None:
    fake.info["enable_memory_saver"] = True
    engine = opened(fake, sleep=True)
    engine.sync(1)
    engine.rest()
    engine.rest()
    assert fake.released == {"kv_cache", "weights"}
    engine.sync(1)
    assert not fake.released
    asleep = fake.seen[fake.paths().index("/release_memory_occupation") :]
    assert [path for path, _ in asleep if path != "/model_info"] == [
        "/release_memory_occupation", "/resume_memory_occupation", "/update_weight_version",
        "/update_weights_from_disk", "/update_weight_version", "/resume_memory_occupation",
    ]  # fmt: skip
    assert [body["tags"] for path, body in asleep if path.startswith("/resume")] == [["weights"], ["kv_cache"]]


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (generated([1, 2], finish="abort"), EngineError, "ended a completion for 'abort'"),
        (generated([1, 2], finish=None), EngineError, "ended a completion for None"),
        ({**generated([1, 2]), "output_ids": []}, EngineError, "0 token ids and 2 log-probs"),
        (generated([1, 2], logprob=None), NonFiniteError, "not finite"),
        ({"meta_info": 3}, EngineError, "with something else"),
    ],
)
def test_replies_that_are_no_completion(
    fake: FakeSGLang, reply: dict[str, Any], error: type[Exception], message: str
) -> None:
    fake.respond = lambda server, body: reply if reply["meta_info"] != 3 else {"meta_info": {"finish_reason": 3}}
    with pytest.raises(error, match=message):
        run(opened(fake), [request()])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="SGLang is on Linux only")
class TestOwnServer:
    @pytest.fixture(autouse=True)
    def fake_sglang(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.syspath_prepend(SUPPORT / "fake_sglang")
        monkeypatch.setenv("PYTHONPATH", f"{SUPPORT / 'fake_sglang'}:{SUPPORT}")

    def test_a_run_starts_a_server_that_needs_a_key_and_ends_it(self, tmp_path: Path) -> None:
        engine = open_sglang(MODEL, TOKENIZER, max_batch_tokens=256, precision="float32", options="--seed-x 3")
        assert run(engine, [request()])[0].text == "7"
        assert engine.description.startswith("the SGLang server of the run's own, up after")
        assert "256 tokens of prompt and completion" in engine.description
        (log,) = tmp_path.glob("grpo-sglang-*/server.log")
        options = log.read_text()
        assert "'--context-length', '258', '--max-total-tokens', '1280'" in options
        assert "'--seed-x', '3'" in options
        assert engine.client.key is not None
        assert engine.client.key not in options  # which others of the machine see
        assert oct(log.parent.stat().st_mode & 0o777) == "0o700"
        engine.client.key = "another"
        with pytest.raises(EngineError, match="HTTP 401"):
            engine.client.post("/update_weight_version", {"new_version": "x"})
        pid = int(options.partition("engine: ")[2].split()[0])
        engine.close()
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=20)
        assert not psutil.pid_exists(pid)
        assert not log.parent.exists()

    def test_a_server_that_is_killed_ends_in_one_line_with_its_cause(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKE_SGLANG", "dies")
        engine = open_sglang(MODEL, TOKENIZER, max_batch_tokens=256, precision="float32")
        with pytest.raises(
            EngineError, match=r"^the SGLang server is gone .*killed by SIGKILL; its output: /\S+log\)$"
        ):
            run(engine, [request()])
        engine.close()

    def test_an_adapters_server_takes_adapters(self, tmp_path: Path) -> None:
        engine = open_sglang(adapted(), TOKENIZER, max_batch_tokens=256, precision="float32")
        (log,) = tmp_path.glob("grpo-sglang-*/server.log")
        assert "'--enable-lora', '--max-lora-rank', '4', '--lora-target-modules', 'q_proj', 'v_proj'" in log.read_text()
        assert run(engine, [request()])[0].text == "7"
        engine.close()


def test_without_sglang_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"engine\.name=sglang needs SGLang.*pip install sglang.*engine\.url"):
        open_sglang(MODEL, TOKENIZER, max_batch_tokens=256, precision="float32")


@pytest.mark.parametrize("url", ["ftp://x", "http://user:secret@host", "nonsense"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UserError, match=r"engine\.url") as caught:
        open_sglang(MODEL, TOKENIZER, max_batch_tokens=64, precision="float32", url=url)
    assert "secret" not in str(caught.value)
