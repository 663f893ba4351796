"""The commands of docs/secure.md, as a reader types them in order, with an identity provider beside them."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tests.conformance.pages.test_pages import NodeReader

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "secure.md"
STEP = re.compile(
    r"^<!-- (?P<how>run|terminal|stop|file)(?:: (?P<name>[\w.]+))? -->$(?:\n```(?P<language>\w*)\n(?P<text>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
PROVIDER = "127.0.0.1:8180"
SECRET = "the secret of orders"


class Provider(HTTPServer):
    """An identity provider: `/keys` has its public key, `/token` gives tokens to who has the secret."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        super().__init__(("127.0.0.1", 0), _Answers)
        self.address = f"127.0.0.1:{self.server_port}"
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def keys(self) -> dict[str, Any]:
        numbers = self.key.public_key().public_numbers()
        return {
            "keys": [
                {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": number(numbers.n), "e": number(numbers.e)}
            ]
        }

    def token(self, client: str) -> str:
        import jwt

        now = int(time.time())
        claims = {"iss": f"http://{self.address}", "aud": "ottla", "sub": client, "iat": now, "exp": now + 600}
        return jwt.encode(claims, self.key, "RS256", {"kid": "1"})


def number(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8, "big")).decode().rstrip("=")


class _Answers(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        self._say(200, self.server.keys())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        client, _, secret = (
            base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode().partition(":")
        )
        if secret != SECRET:
            self._say(401, {"error": "invalid_client"})
        else:
            self._say(200, {"access_token": self.server.token(client), "expires_in": 600, "token_type": "Bearer"})

    def _say(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


class SecureReader(NodeReader):
    """A reader whose shell keeps what `ottla security env` says."""

    def __init__(self, directory: Path, provider: Provider) -> None:
        super().__init__(directory)
        self.addresses[PROVIDER] = provider.address
        self.bootstrap = self.environ.pop("OTTLA_BOOTSTRAP")

    def run(self, text: str) -> None:
        for command in text.splitlines():
            if command.startswith("eval "):
                self._take(command)
            else:
                super().run(command)

    def _take(self, command: str) -> None:
        asked = command.removeprefix("eval $(").removesuffix(")")
        said = subprocess.run(
            ["bash", "-c", asked], cwd=self.directory, env=self.environ, capture_output=True, text=True, check=True
        ).stdout
        for line in said.splitlines():
            (pair,) = shlex.split(line.removeprefix("export "))
            name, _, value = pair.partition("=")
            self.environ[name] = value
        assert self.environ["OTTLA_BOOTSTRAP"] == self.bootstrap

    def terminal(self, name: str, command: str) -> None:
        for each in ("OTTLA_CLIENT_CONFIG", "OTTLA_BOOTSTRAP"):
            self.environ.pop(each, None)
        super().terminal(name, command)


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    provider = Provider()
    reader = SecureReader(tmp_path, provider)
    steps = list(STEP.finditer(PAGE.read_text(encoding="utf-8")))
    try:
        for step in steps:
            if step["how"] == "terminal":
                reader.terminal(step["name"], step["text"])
            elif step["how"] == "stop":
                reader.stop(step["name"])
            elif step["how"] == "file":
                (tmp_path / step["name"]).write_text(reader.here(step["text"]))
            else:
                reader.run(reader.here(step["text"]))
        assert not reader.terminals
    finally:
        reader.close()
        provider.shutdown()
        provider.server_close()
    assert len(steps) >= 18


def test_each_hole_has_the_test_that_the_page_names() -> None:
    rows = re.findall(r"^\| (CVE-[^|]+) \|.*\| (`tests/[^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) >= 11
    for numbers, files in rows:
        text = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in re.findall(r"`([^`]+)`", files))
        missing = [number for number in re.findall(r"CVE-\d+-\d+", numbers) if number not in text]
        assert not missing, (missing, files)
