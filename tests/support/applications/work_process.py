"""`tussock work` as a separate process, and a program that takes such workers."""

from collections.abc import Mapping

from support.applications.serve_process import ServeProcess
from support.children import EXAMPLES, path_of_imports
from support.service.meta_process import ServiceProcess

__all__ = ["BANK", "ProgramProcess", "WorkProcess"]

BANK = "support.applications.served_bank:make"
FREE = "127.0.0.1:0"


class ProgramProcess(ServeProcess):
    """A bank whose workers join."""

    def __init__(
        self,
        store: str,
        workers: int,
        *arguments: str,
        workers_listen: str = FREE,
        app: str = BANK,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        joining = ("--workers", str(workers), "--workers-listen", workers_listen)
        super().__init__(store, *joining, *arguments, app=app, environment=environment)

    @property
    def http(self) -> str:
        """Known before it serves."""
        return str(self.wait_for(event="taking workers")["http"])

    @property
    def workers_address(self) -> str:
        """Where workers join: before it serves."""
        return str(self.wait_for(event="taking workers")["address"])


class WorkProcess(ServiceProcess):
    """A worker of the program at an address."""

    def __init__(
        self,
        program: str,
        store: str,
        *arguments: str,
        app: str = BANK,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            *("work", app, "--program", program, "--store", store, *arguments),
            environment={"PYTHONPATH": path_of_imports(EXAMPLES), **(environment or {})},
        )

    def wait_until_ready(self) -> None:
        self.wait_for(event="ready")
