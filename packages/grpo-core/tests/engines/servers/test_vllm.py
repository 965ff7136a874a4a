import base64
import math
import pickle
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from server_engines import MODEL, TOKENIZER, adapted, ids, request, run
from transformers import AutoModelForCausalLM
from vllm_server import EOS, SEVEN, FakeVLLM, choice, handler_of, listening, serving

from grpo_core.engines.compatibility import context_of, max_context
from grpo_core.engines.native import NativeEngine
from grpo_core.engines.servers import client
from grpo_core.engines.servers.client import ServerClient
from grpo_core.engines.servers.engine import ServerEngine
from grpo_core.engines.servers.vllm import open_vllm
from grpo_core.engines.servers.weights import Control
from grpo_core.policy.fresh import fresh_model
from grpo_sdk.endpoints.base import AtOnce, Engine, Request, Sampling, TakesArrivals
from grpo_sdk.endpoints.completion import Completion
from grpo_sdk.errors import EngineError, NonFiniteError, UserError


@pytest.fixture
def fake() -> Iterator[FakeVLLM]:
    with serving(FakeVLLM()) as server:
        yield server


def opened(fake: FakeVLLM, model: Any = MODEL, **options: Any) -> ServerEngine:
    options = {"max_batch_tokens": 1024, "precision": "float32", "url": fake.url, **options}
    return open_vllm(model, TOKENIZER, **options)


def reply_to(fake: FakeVLLM, path: str, reply: tuple[int, Any]) -> None:
    """Let a server reply so to requests of a path."""
    answer = fake.answer
    fake.answer = lambda asked, body: reply if asked.startswith(path) else answer(asked, body)  # type: ignore[method-assign]


def test_a_request_leaves_nothing_to_the_servers_defaults(fake: FakeVLLM) -> None:
    sampling = Sampling(temperature=1.0, top_k=5, top_p=0.9, min_p=0.1, max_completion_length=8)
    run(opened(fake), [request(stop=("\n",), max_completion_length=4)], sampling)
    (body,) = fake.completions()
    seed = body.pop("seed")
    assert 0 <= seed < 2**63
    assert body == {
        "model": "served", "prompt": ids("1 + 1 ="), "max_tokens": 4, "temperature": 1.0, "top_k": 5, "top_p": 0.9,
        "min_p": 0.1, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "stop": ["\n"],
        "stop_token_ids": [EOS], "include_stop_str_in_output": True, "logprobs": 0, "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }  # fmt: skip


def test_seeds_belong_to_keys_and_greedy_requests_have_none(fake: FakeVLLM) -> None:
    engine = opened(fake)
    run(engine, [request(sample=0), request(sample=1)])
    run(engine, [request(sample=1)])
    run(engine, [request()], Sampling(temperature=0.0))
    first, second, again, greedy = fake.completions()
    seeds = sorted([first["seed"], second["seed"]])
    assert seeds[0] != seeds[1]
    assert again["seed"] in seeds
    assert "seed" not in greedy


def test_log_probs_that_the_server_cannot_say_are_nan(fake: FakeVLLM) -> None:
    engine = opened(fake)  # raw_logprobs: before the temperature
    hot, plain = Sampling(temperature=0.7), Sampling(temperature=1.0, top_k=3)
    assert all(map(math.isnan, run(engine, [request()], hot)[0].logprobs))
    assert run(engine, [request()], plain)[0].logprobs == (-1.0, -1.0)
    fake.config["logprobs_mode"] = "processed_logprobs"  # after the filters
    engine = opened(fake)
    assert run(engine, [request()], hot)[0].logprobs == (-1.0, -1.0)
    assert all(map(math.isnan, run(engine, [request()], plain)[0].logprobs))


def test_weights_are_sent_once_for_each_version_and_the_prefix_cache_is_dropped(fake: FakeVLLM) -> None:
    engine = opened(fake)
    assert isinstance(engine, Engine)
    engine.sync(1)
    engine.sync(1)
    (completion,) = run(engine, [request()])
    assert completion == Completion((SEVEN, EOS), (-1.0, -1.0), "7", "stop", 1)
    engine.sync(2)
    paths = [path.partition("?")[0] for path in fake.paths()]
    assert paths.count("/collective_rpc") == 2
    sent = paths.index("/collective_rpc")
    assert sent < paths.index("/reset_prefix_cache", sent) < paths.index("/v1/completions")
    assert all("model.safetensors" in files for files in fake.loaded)
    assert not Path(fake.folder).exists()  # it is read once
    engine.close()
    assert not Path(fake.folder).parent.exists()


def test_requests_are_sent_as_they_arrive(fake: FakeVLLM) -> None:
    engine = opened(fake)
    assert isinstance(engine, TakesArrivals)
    coming = SimpleQueue[list[tuple[int, Request]] | None]()

    class Coming:
        def take(self, *, wait: bool) -> list[tuple[int, Request]] | None:
            return [] if coming.empty() else coming.get()

    coming.put([(5, request()), (3, request("d", max_completion_length=1))])
    arriving = engine.generate_arriving(Coming(), Sampling(max_completion_length=8))
    first = dict([next(arriving), next(arriving)])
    assert {number: each.finish_reason for number, each in first.items()} == {5: "stop", 3: "length"}
    coming.put([(4, request("efghi"))])
    number, completion = next(arriving)
    assert (number, completion.text) == (4, "7")
    coming.put(None)
    assert list(arriving) == []


def test_a_server_that_is_gone_ends_requests_that_arrive(fake: FakeVLLM) -> None:
    engine = opened(fake)
    engine.sync(1)
    reply_to(fake, "/v1/completions", (500, {"error": "out of memory"}))

    class Open(AtOnce):  # more may come
        def take(self, *, wait: bool) -> list[tuple[int, Request]] | None:
            return super().take(wait=wait) or []

    with pytest.raises(EngineError, match="out of memory"):
        list(engine.generate_arriving(Open([request()]), Sampling(max_completion_length=8)))
    with pytest.raises(UserError, match="does not fit"):
        list(engine.generate_arriving(Open([request("1" * 600)]), Sampling(max_completion_length=8)))


def test_a_tied_model_is_untied_for_a_cpu_whose_output_layer_updates_miss(fake: FakeVLLM, tmp_path: Path) -> None:
    fake.device, fake.config["hf_overrides"] = "cpu", {"tie_word_embeddings": False}
    fake.on_load = lambda folder: shutil.copytree(folder, tmp_path / "sent")  # type: ignore[assignment]
    opened(fake).sync(1)
    sent = AutoModelForCausalLM.from_pretrained(tmp_path / "sent")
    assert not sent.config.tie_word_embeddings
    assert sent.lm_head.weight is not sent.model.embed_tokens.weight
    inputs = torch.tensor([ids("1 + 1")])
    assert torch.equal(sent.eval()(inputs).logits, MODEL.eval()(inputs).logits)


def test_a_server_that_gets_weights_of_another_run_or_was_restarted_is_noticed(fake: FakeVLLM) -> None:
    one, other = opened(fake), opened(fake)
    fake.on_load = lambda folder: other.sync(1) if len(fake.loaded) == 1 else None  # type: ignore[assignment]
    with pytest.raises(EngineError, match=r"'grpo-\w+-1' and not 'grpo-\w+-1-begun': .*another run uses it"):
        one.sync(1)
    assert [each.text for each in run(other, [request()])] == ["7"]
    fake.version = "default"
    with pytest.raises(EngineError, match=r"has weights of version 'default' and not 'grpo-\w+-1': it was restarted"):
        run(other, [request()])


def test_an_adapters_base_is_the_weights_that_nobody_has_trained() -> None:
    with serving(FakeVLLM(lora=True)) as fake:
        engine = opened(fake, adapted())
        engine.sync(1)
        other = opened(fake)
        other.sync(1)
        with pytest.raises(EngineError, match=r"has weights of version 'grpo-\w+-1' and not 'default'"):
            run(engine, [request()])
        with pytest.raises(UserError, match=r"weights that a run has trained .* Restart the server"):
            opened(fake, adapted())


def test_an_adapter_is_sent_as_an_adapter_under_a_new_name() -> None:
    with serving(FakeVLLM(lora=True)) as fake:
        engine = opened(fake, adapted())
        engine.sync(1)
        run(engine, [request()])
        engine.sync(2)
        run(engine, [request()])
        first, second = (body["model"] for body in fake.completions())
        assert first != second
        assert first.endswith("-1")
        assert list(fake.adapters) == [second]
        assert all("adapter_model.safetensors" in files for files in fake.loaded)
        assert "/collective_rpc" not in fake.paths()
        fake.adapters.clear()  # as after a restart
        with pytest.raises(EngineError, match="does not exist"):
            run(engine, [request()])


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")
@pytest.mark.parametrize(("settings", "named"), [
    ({"use_dora": True}, "use_dora=True"),
    ({"init_lora_weights": "pissa"}, "init_lora_weights=pissa"),  # whose base is not the server's
    ({"alpha_pattern": {"q_proj": 3}}, "alpha_pattern"),  # which vLLM does not read
    ({"bias": "all"}, "bias=all"),
    ({"target_modules": ["q_proj", "embed_tokens"]}, "embeddings that are the output layer"),
    ({"r": 513}, "rank 513"),
])  # fmt: skip
def test_adapters_that_vllm_cannot_apply_are_refused(fake: FakeVLLM, settings: dict[str, Any], named: str) -> None:
    config = LoraConfig(**{"r": 4, "target_modules": ["q_proj"], **settings})
    with pytest.raises(UserError, match=f"its server has no .*{named}"):
        opened(fake, get_peft_model(fresh_model("tiny", 1)[0], config))


PACKAGES = (500, {"error": {"message": "'NoneType' object has no attribute 'splitlines'"}})
PROCESSED = {"config": {"logprobs_mode": "processed_logprobs"}}


@pytest.mark.parametrize(("server", "replies", "options", "message"), [
    ({"dev_mode": False}, {}, {}, "Start it so: VLLM_SERVER_DEV_MODE=1 vllm serve"),
    ({"device": "cpu"}, {}, {}, r"Start it with --hf-overrides '\{\"tie_word_embeddings\": false\}'"),
    ({}, {"/server_info": PACKAGES}, {}, r"splitlines.* install pip beside vLLM, or put uv on the server's PATH"),
    ({}, {"/weight_info": (404, {})}, {}, r"older than vLLM 0\.28"),
    ({}, {}, {"model": adapted()}, "takes no adapters; start it with --enable-lora --max-lora-rank 8"),
    ({}, {}, {"shared_dir": "/nowhere"}, "shared_dir=/nowhere: No such file"),
    ({}, {}, {"is_quantized": True}, "not there for quantized models"),
    ({}, {}, {"sleep": True}, "start it with --enable-sleep-mode"),
    ({}, {}, {"transfer": "nccl"}, "has no weight transfer; start it with"),
    ({"weight_transfer": "nccl"}, {}, {"transfer": "nccl"}, "from an NVIDIA GPU; the model is on cpu"),
    ({}, {}, {"sampling": Sampling(temperature=0.7)}, "raw_logprobs does not say .*temperature=0.7"),
    (PROCESSED, {}, {"sampling": Sampling(top_p=0.9)}, "processed_logprobs does not say"),
])  # fmt: skip
def test_a_server_that_cannot_do_what_is_needed_is_refused_with_what_to_do(
    server: dict[str, Any], replies: dict[str, tuple[int, Any]], options: dict[str, Any], message: str
) -> None:
    with serving(FakeVLLM(**server)) as fake:
        for path, reply in replies.items():
            reply_to(fake, path, reply)
        with pytest.raises(UserError, match=message):
            opened(fake, **options)


def test_weights_that_are_refused_name_their_folder_and_no_key_that_the_server_repeats(
    fake: FakeVLLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(fake, shared_dir=str(tmp_path))
    monkeypatch.setenv("VLLM_API_KEY", "sk-secret")
    padding = "x" * 284  # the key lies across the place where the excerpt is cut
    for said in ("you sent Authorization: Bearer sk-secret", f"{padding}sk-secret"):
        reply_to(fake, "/collective_rpc", (500, {"error": said}))
        with pytest.raises(EngineError, match=r"must see the folder .*weights: engine\.args\.shared_dir") as error:
            engine.sync(1)
        assert "sk-s" not in str(error.value)


def test_the_shorter_context_of_a_server_holds(fake: FakeVLLM) -> None:
    engine, own = opened(fake), max_context(MODEL)
    assert own is not None and context_of(NativeEngine(MODEL, TOKENIZER), MODEL) == own
    for served in (own - 100, own + 100):
        engine._api.facts = replace(engine._api.facts, max_model_len=served)  # type: ignore[misc]
        assert context_of(engine, MODEL) == min(served, own)


@pytest.mark.parametrize(("reply", "error", "message"), [
    (choice([1, 2], finish_reason="abort"), EngineError, "ended a completion for 'abort'"),
    ({**choice([1, 2]), "token_ids": None}, EngineError, "0 token ids and 2 log-probs"),
    (choice([1, 2], logprob=-9999.0), NonFiniteError, "not finite"),
    ({"finish_reason": 3}, EngineError, "with something else"),
    (choice([1], logprob=3.0), EngineError, r"a log-prob of 3; none is above 0"),
    (choice([258, 1]), EngineError, "token 258, and the model has 258"),
    (choice([SEVEN] * 9, finish_reason="length"), EngineError, "9 tokens, and at most 8 were requested"),
    (choice([SEVEN]), EngineError, f"with token {SEVEN}, which is no end of this model's"),
])  # fmt: skip
def test_what_is_no_completion(fake: FakeVLLM, reply: Any, error: type[Exception], message: str) -> None:
    fake.respond = lambda server, body: reply
    with pytest.raises(error, match=message):
        run(opened(fake), [request()])


@pytest.mark.parametrize(("sent", "stop", "expected"), [
    ([SEVEN, EOS, SEVEN], (), ((SEVEN, EOS), "7", "stop")),  # after the end
    (ids("4\n5\n6"), ("\n5",), (tuple(ids("4\n5")), "4\n5", "stop")),  # after a stop string, which it did not see
    (ids("123"), ("x",), (tuple(ids("123")), "123", "length")),
])  # fmt: skip
def test_a_completion_ends_where_ours_would(
    fake: FakeVLLM, sent: list[int], stop: tuple[str, ...], expected: Any
) -> None:
    fake.respond = lambda server, body: choice(sent, finish_reason="length")
    (completion,) = run(opened(fake), [request(stop=stop)])
    assert (completion.token_ids, completion.text, completion.finish_reason) == expected
    assert len(completion.logprobs) == len(completion.token_ids)


def test_two_completions_and_a_request_that_does_not_fit_are_refused(fake: FakeVLLM) -> None:
    reply_to(fake, "/v1/completions", (200, {"choices": [choice([SEVEN, EOS])] * 2}))
    with pytest.raises(EngineError, match="replied with 2 completions, and one was requested"):
        run(opened(fake), [request()])
    with pytest.raises(UserError, match=r"prompt 505 .* 8 = 513 tokens, 1 more than 512, the server"):
        opened(fake).generate([request("x" * 505)], Sampling(max_completion_length=8))


def test_requests_are_in_flight_together_and_an_abandoned_batch_ends(fake: FakeVLLM) -> None:
    together = threading.Barrier(24, timeout=30)
    fake.respond = lambda server, body: choice([EOS]) if together.wait() >= 0 else {}
    completions = opened(fake).generate([request(sample=index) for index in range(24)], Sampling())
    next(completions)
    completions.close()  # type: ignore[attr-defined] # a generator


def test_sleep_frees_memory_between_phases_and_weights_are_sent_before_the_cache_wakes(fake: FakeVLLM) -> None:
    fake.config["enable_sleep_mode"] = True
    engine = opened(fake, sleep=True)
    engine.sync(1)
    engine.rest()
    engine.rest()
    engine.sync(1)
    woken = fake.paths()[fake.paths().index("/sleep?level=2") :]
    assert [path for path in woken if "sleep" in path] == ["/sleep?level=2"]
    assert woken.index("/wake_up?tags=weights") < woken.index("/collective_rpc") < woken.index("/wake_up?tags=kv_cache")


def test_vllms_own_sender_steers_the_server_and_ships_handles_as_it_reads_them(fake: FakeVLLM) -> None:
    control = Control(ServerClient(fake.url, timeout_s=10))
    control.init_weight_transfer_engine({"packed": True})
    control.start_weight_update()
    control.update_weights({"names": ["a"], "ipc_handles": {"GPU-1": (1, 2)}})
    control.finish_weight_update()
    paths, bodies = zip(*fake.seen, strict=True)
    assert paths == ("/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update")
    info = bodies[2]["update_info"]
    assert info.keys() == {"names", "ipc_handles_pickled"}
    assert pickle.loads(base64.b64decode(info["ipc_handles_pickled"])) == {"GPU-1": (1, 2)}


@pytest.mark.parametrize("url", ["ftp://x", "http://user:secret@host", "nonsense"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UserError, match=r"engine\.url") as caught:
        open_vllm(MODEL, TOKENIZER, max_batch_tokens=64, precision="float32", url=url)
    assert "secret" not in str(caught.value)


# --- replies that never end, or are packed


def endless(path: str, piece: bytes) -> type[BaseHTTPRequestHandler]:
    """Replies without an end at a path, in pieces, and as usual elsewhere."""

    class Handler(handler_of(FakeVLLM())):  # type: ignore[misc] # a class that a function makes
        def _reply(self, body: dict[str, Any]) -> None:
            if self.path != path:
                super()._reply(body)
                return
            self.send_response(200)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has left
                while True:
                    self.wfile.write(piece)

    return Handler


def sample(url: str) -> str:
    engine = open_vllm(MODEL, TOKENIZER, max_batch_tokens=64, precision="float32", url=url, timeout_s=1)
    return run(engine, [request()])[0].text


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models"])
def test_the_limit_of_a_request_is_that_of_its_whole_reply(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(client, "MAX_REPLY_BYTES", 2**40)
    monkeypatch.setattr(client, "CONTROL_S", 1)
    with (
        listening(endless(path, b" ")) as url,
        pytest.raises(EngineError, match=f"no whole reply to {path} within 1 s"),
    ):
        sample(url)


def test_the_content_of_a_reply_about_the_health_is_not_read() -> None:
    with listening(endless("/health", b"x" * 2**16)) as url:
        assert sample(url) == "7"
