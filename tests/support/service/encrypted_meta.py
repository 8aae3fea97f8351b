"""A meta node and its clients with the certificates in a store's secrets."""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.service.meta_process import MetaProcess
from tussock.operator.manifests.transport_security import Identity, role_patterns, server_name, tls_secret
from tussock.operator.resources.store import StoreResource
from tussock.statestore import StateStore, connect

__all__ = ["encrypted_meta", "meta_with"]


@contextmanager
def encrypted_meta(
    secrets: Mapping[str, Mapping[str, str]], store: StoreResource, folder: Path
) -> Iterator[MetaProcess]:
    """A node that leads. `secrets` are their `data`, by name; each becomes a folder of files in `folder`."""
    for name, data in secrets.items():
        (folder / name).mkdir()
        for file, content in data.items():
            (folder / name / file).write_bytes(base64.b64decode(content))
    own = folder / tls_secret(store, "meta")
    files = ("--tls.certificate", own / "tls.crt", "--tls.key", own / "tls.key", "--tls.client-ca", own / "ca.crt")
    roles = [part for role, names in role_patterns(store).items() for part in (f"--tls.roles.{role}", ",".join(names))]
    with MetaProcess((folder / "bucket").as_uri(), *map(str, files), *roles) as meta:
        yield meta.wait_until_it_leads()


@contextmanager
def meta_with(
    secrets: Mapping[str, Mapping[str, str]], store: StoreResource, folder: Path
) -> Iterator[Callable[..., StateStore]]:
    """The same; yields a function that connects as an identity."""
    with encrypted_meta(secrets, store, folder) as meta:

        def connect_as(identity: Identity, **options: Any) -> StateStore:
            shown = folder / tls_secret(store, identity)
            files = {"tls_ca": shown / "ca.crt", "tls_cert": shown / "tls.crt", "tls_key": shown / "tls.key"}
            named = {"tls_server_name": server_name(store), **options}
            return connect(meta.url, **{name: str(file) for name, file in files.items()}, **named)

        yield connect_as
