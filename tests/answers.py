"""An HTTP server that gives the answers it is told to give, for failures that no real service shows on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.http_servers import serving


@dataclass
class Answers:
    """What is answered next, the last one for ever, with which headers, and what was asked."""

    port: int = 0
    told: list[tuple[int, bytes]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where to ask."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def answering() -> Iterator[Answers]:
    """A server on a free port, until the block ends."""
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answers.asked.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            status, body = answers.told.pop(0) if len(answers.told) > 1 else answers.told[0]
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in answers.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Say nothing."""

    with serving(Handler) as answers.port:
        yield answers
