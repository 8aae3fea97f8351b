"""`tussock serve` as a separate process."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from support.children import EXAMPLES, path_of_imports
from support.service.meta_process import ServiceProcess

PROGRAM = "support.applications.served_program"


class ServeProcess(ServiceProcess):
    """An application of `served_program`, unless another one is named, on free ports."""

    def __init__(
        self, store: str, *arguments: str, app: str = f"{PROGRAM}:make", environment: Mapping[str, str] | None = None
    ) -> None:
        places = ("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
        # Behind them what the caller's own code comes from.
        super().__init__(
            *("serve", app, *(("--store", store) if store else ()), *places, *arguments),
            environment={"PYTHONPATH": path_of_imports(EXAMPLES), **(environment or {})},
        )

    @property
    def address(self) -> str:
        """The address of its gRPC port, once it serves."""
        return str(self.wait_for(event="serving")["address"])

    @property
    def http(self) -> str:
        return str(self.wait_for(event="serving")["http"])

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        """Status code and body of a page."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        asked = urllib.request.Request(f"http://{self.http}{path}", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/status")[1])
        return found
