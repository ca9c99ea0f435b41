"""HTTPS with a certificate that only a file vouches for, and proxies from the environment: real ones, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.live.conftest import Place
from tests.support.live_server import LiveServer
from tests.support.proxy_server import ProxyServer

NONE = {"HTTP_PROXY": "", "HTTPS_PROXY": "", "ALL_PROXY": "", "NO_PROXY": "", "SSL_CERT_FILE": "", "SSL_CERT_DIR": ""}
# Also in the other spelling, which comes first.
PLAIN = {**NONE, **{name.lower(): "" for name in NONE if "PROXY" in name}}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    return folder


@pytest.fixture(scope="module")
def secure(certificates: Path) -> Iterator[LiveServer]:
    with LiveServer(tls=str(certificates / "server.pem")) as server:
        yield server


def test_a_certificate_that_a_file_vouches_for(place: Place, secure: LiveServer, certificates: Path) -> None:
    place.http(secure.url, 'ca_file = "ca.pem"')
    (place.folder / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())
    code, out, err = place.run("run", "--run-id", "r", **PLAIN)
    assert (code, out) == (0, "r\n"), err
    assert all(row.get("error") is None and row["hits_top_k"] for row in place.results("r").values())
    place.http(secure.url)
    trusted = {**PLAIN, "SSL_CERT_FILE": str(certificates / "ca.pem")}
    assert place.run("run", "--run-id", "by-environment", **trusted)[0] == 0


def test_a_certificate_that_is_not_trusted_is_named_before_anything_is_sent(place: Place, secure: LiveServer) -> None:
    before = secure.counts()["requests"]
    place.http(secure.url)
    code, _, err = place.run("run", "--run-id", "r", **PLAIN)
    assert code == 2
    assert "certificate of the server is not trusted" in err
    assert "ca_file" in err
    # Without a health check each query fails once: trying again would not help.
    place.http(secure.url, "health = false")
    code, _, err = place.run("run", "--run-id", "r", "--max-errors", "100%", **PLAIN)
    assert code == 0, err
    attempts = place.rows("SELECT attempt, error_kind, error_message FROM kbeval_attempts")
    assert {(number, kind) for number, kind, _ in attempts} == {(1, "target")}
    assert all("not trusted" in message for *_, message in attempts)
    assert secure.counts()["requests"] == before


@pytest.mark.parametrize(
    ("content", "fragment"), [(None, "there is no file"), ("not a certificate", "has no certificates in PEM format")]
)
def test_a_wrong_file_of_certificates(place: Place, secure: LiveServer, content: str | None, fragment: str) -> None:
    if content is not None:
        (place.folder / "ca.pem").write_text(content)
    place.http(secure.url, 'ca_file = "ca.pem"')
    code, _, err = place.run("run", **PLAIN)
    assert (code, err.count("\n")) == (2, 1), err
    assert fragment in err
    assert "target.ca_file" in err


def test_proxies_of_the_environment_are_used(
    place: Place, server: LiveServer, secure: LiveServer, certificates: Path
) -> None:
    with ProxyServer() as proxy:
        address = f"http://127.0.0.1:{proxy.port}"
        place.http(server.url)
        assert place.run("run", "--run-id", "plain", **{**PLAIN, "HTTP_PROXY": address, "http_proxy": address})[0] == 0
        assert {line.split(" ")[:2][1] for line in proxy.seen} == {f"{server.url}/search"}
        proxy.seen.clear()
        place.http(secure.url, f'ca_file = "{certificates / "ca.pem"}"')
        code, _, err = place.run("run", "--run-id", "secure", **{**PLAIN, "ALL_PROXY": address, "all_proxy": address})
        assert code == 0, err
        assert {line.split(" ")[0] for line in proxy.seen} == {"CONNECT"}
        proxy.seen.clear()
        place.http(server.url)
        direct = {"HTTP_PROXY": address, "http_proxy": address, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        assert place.run("run", "--run-id", "direct", **{**PLAIN, **direct})[0] == 0
        assert proxy.seen == []
    for name in ("plain", "secure", "direct"):
        assert all(row.get("error") is None for row in place.results(name).values()), name


def test_a_proxy_with_a_password_and_one_that_is_down(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    with ProxyServer("kim:s3cret-proxy-pass") as proxy:
        for word, errors in (("s3cret-proxy-pass", 0), ("wrong-proxy-pass", 5)):
            address = f"http://kim:{word}@127.0.0.1:{proxy.port}"
            code, _, err = place.run(
                "run",
                "--run-id",
                word[:5],
                "--max-errors",
                "100%",
                **{**PLAIN, "HTTP_PROXY": address, "http_proxy": address},
            )
            assert code == 0, err
            failed = [row["error"] for row in place.results(word[:5]).values() if row.get("error")]
            assert len(failed) == errors
            assert {error["status"] for error in failed} <= {407}
            for file in place.folder.rglob("*"):
                assert not file.is_file() or word.encode() not in file.read_bytes(), file
            assert word not in err
    place.http(server.url, "attempts = 1")
    address = f"http://kim:s3cret-proxy-pass@127.0.0.1:{proxy.port}"
    code, _, err = place.run(
        "run", "--run-id", "down", "--max-errors", "100%", **{**PLAIN, "HTTP_PROXY": address, "http_proxy": address}
    )
    assert code == 0, err
    assert {row["error"]["kind"] for row in place.results("down").values()} == {"connection"}
    assert "s3cret-proxy-pass" not in err
