import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from reported_runs import make_run, rollouts, write_lines

from grpo_core.report.server import ReportServer
from grpo_sdk.errors import UserError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", rollouts(2))


@pytest.fixture
def server(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportServer]:
    monkeypatch.setattr("grpo_core.report.page.chart_library", lambda: "")
    monkeypatch.setattr("grpo_core.report.server.chart_library", lambda: "")
    monkeypatch.setattr("grpo_core.report.server.REST", 0.0)
    with ReportServer([run], rollouts=1000) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_page_may_ask_its_own_server_alone(server: ReportServer) -> None:
    answer = httpx.get(server.address)
    assert answer.status_code == 200 and "connect-src 'self';" in answer.text
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_data_is_sent_when_it_changed(server: ReportServer, run: Path) -> None:
    first = httpx.get(f"{server.address}/data.json")
    tag = {"If-None-Match": first.headers["ETag"]}
    assert first.json()["runs"][0]["rollouts"]["total"] == 32
    assert httpx.get(f"{server.address}/data.json", headers=tag).status_code == 304
    write_lines(run / "logs" / "rollouts.jsonl", rollouts(3))
    second = httpx.get(f"{server.address}/data.json", headers=tag)
    assert second.status_code == 200 and second.json()["runs"][0]["rollouts"]["total"] == 48


def test_other_sites_and_names_are_refused(server: ReportServer) -> None:
    assert server.address.startswith("http://127.0.0.1:")
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert httpx.get(f"{server.address}/data.json", headers=headers).status_code == 403
    assert httpx.post(f"{server.address}/data.json", json={}).status_code == 405
    assert httpx.get(f"{server.address}/../config.yaml").status_code == 404


def test_a_taken_port_and_a_folder_that_is_no_run_are_refused(server: ReportServer, run: Path) -> None:
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1, port {port}: another process uses it"):
        ReportServer([run], rollouts=0, port=port)
    with pytest.raises(UserError, match="no run"):
        ReportServer([run / "nothing"], rollouts=0)
