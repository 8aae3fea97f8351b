"""Whether the files that the settings name can be used, before anything is served.

The service reads them again when they change; then a file that cannot be used is logged, and the former one stays.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tussock.meta.node.auth.clients.file import read_clients
from tussock.meta.node.auth.tokens import read_tokens
from tussock.meta.node.wire.outside import read_outside
from tussock.statestore.base.pem import check_authority, check_pair
from tussock.statestore.errors import InvalidOption

__all__ = ["unusable_files"]


def unusable_files(settings: Any) -> list[tuple[str, str]]:
    """Pairs (option, what is wrong) of files that are missing, cannot be read, or do not hold what they should."""
    tls = settings.tls
    files = {
        "tls.certificate": tls.certificate,
        "tls.key": tls.key,
        "tls.client_ca": tls.client_ca,
        "tokens.file": settings.tokens.file,
        # Nodes of applications have none.
        "clients.file": settings.clients.file if hasattr(settings, "clients") else "",
        "outside.file": settings.outside.file if hasattr(settings, "outside") else "",
        "oidc.ca": settings.oidc.ca if hasattr(settings, "oidc") else "",
    }
    unreadable = {name: why for name, path in files.items() if path and (why := _unreadable(path))}

    def misfit(*names: str, check: Callable[[], object]) -> list[tuple[str, str]]:
        if not all(files[name] for name in names) or unreadable.keys() & set(names):
            return []
        try:
            check()
        except (InvalidOption, OSError) as error:
            return [(names[0], str(error))]
        return []

    return [
        *unreadable.items(),
        *misfit("tls.certificate", "tls.key", check=lambda: check_pair(tls.certificate, tls.key)),
        *misfit("tls.client_ca", check=lambda: check_authority(tls.client_ca)),
        *misfit("tokens.file", check=lambda: read_tokens([settings.tokens.file])),
        *misfit("oidc.ca", check=lambda: check_authority(files["oidc.ca"])),
        *misfit("outside.file", check=lambda: read_outside([files["outside.file"]])),
        *misfit("clients.file", check=lambda: read_clients([files["clients.file"]])),
    ]


def _unreadable(path: str) -> str:
    """Why the file cannot be read; empty if it can be."""
    try:
        Path(path).read_bytes()
    except OSError as error:
        # The path is not repeated: where no file has it, it may be the key or the token itself.
        return f"the file cannot be read: {error.strerror}"
    except ValueError:
        return "this is no name of a file"
    return ""
