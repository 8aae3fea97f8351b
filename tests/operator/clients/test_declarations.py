"""The declarations of a store's clients as the meta service reads them: each is right by itself, or left out."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.operator.clients import client_with
from support.operator.resources import DEFAULTS, meta_with, store_with
from tussock.meta.node.auth.clients.declarations import DeclaredClient, DeclaredClients, OidcIdentity
from tussock.meta.node.auth.clients.file import CLIENTS_MAX as CLIENTS_MAX_OF_FILE
from tussock.meta.node.auth.clients.file import read_clients
from tussock.meta.node.auth.tokens import ROLES
from tussock.operator.manifests.certificates import client_certificate
from tussock.operator.manifests.clients import client_name, has_entry
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.manifests.meta_config import clients_file
from tussock.operator.manifests.network import network_policies
from tussock.operator.manifests.transport_security import role_patterns
from tussock.operator.planning.clients.declarations import CLIENTS_MAX, ENTRIES_BYTES_MAX, declare, place_of
from tussock.operator.resources.client import StateStoreClient

STORE = store_with({"managed": {}})
CI = {"issuer": "https://ci.example", "audience": "tussock", "subject": "repo:shop"}


def read(folder: Path, *clients: StateStoreClient, **meta: Any) -> DeclaredClients:
    """What the service makes of the file with these clients."""
    file = folder / "clients.toml"
    file.write_text(clients_file(meta_with(**meta), tuple(declare(STORE, clients).entries.values())))
    return read_clients([str(file)])


def test_the_service_reads_what_was_declared(tmp_path: Path) -> None:
    """Every field, beside the certificates that a Meta's settings revoke."""
    found = read(
        tmp_path,
        client_with(),
        client_with(
            "importer",
            role="writer",
            tables=["orders", "clicks_*"],
            rate=2.5,
            expiresAt="2027-03-01T01:00:00+01:00",
            revoked=True,
            certificate=True,
            certificateVersion=7,
            oidc=[CI, {"issuer": "https://login.example", "audience": "a", "claims": {"groups": "x"}}],
        ),
        config={"tls": {"revoked": ["CN:tussock-job-old"]}},
    )
    assert found.is_revoked(["CN:tussock-job-old"])
    assert dict(found.all()) == {
        "dashboard": DeclaredClient(
            "dashboard", ROLES["reader"], certificates=("URI:tussock://data/shop/client/dashboard/1",)
        ),
        "importer": DeclaredClient(
            "importer",
            ROLES["writer"],
            certificates=("URI:tussock://data/shop/client/importer/7",),
            oidc=(
                OidcIdentity("https://ci.example", "tussock", "repo:shop"),
                OidcIdentity("https://login.example", "a", "", (("groups", "x"),)),
            ),
            tables=("orders", "clicks_*"),
            rate=2.5,
            expires_ms=1803859200000,
            revoked=True,
        ),
    }


def test_text_of_users_cannot_leave_its_place(tmp_path: Path) -> None:
    """Quotation marks, ends of lines and characters that TOML forbids stay inside their value."""
    odd = '"]\n[clients.boss]\nrole = "admin" # \\ \t\x00\x1f\x7f\u2028é'
    identity = {"issuer": "https://x", "audience": odd, "subject": odd, "claims": {odd: odd, "a": "b"}}
    found = read(tmp_path, client_with("x", role="writer", tables=[odd.replace("*", "")], oidc=[identity]))
    assert list(found.all()) == ["x"]
    client = found.all()["x"]
    assert client.tables == (odd,)
    assert client.oidc == (OidcIdentity("https://x", odd, odd, tuple(sorted({odd: odd, "a": "b"}.items()))),)


def test_a_certificate_is_of_no_role_and_of_its_client_alone(tmp_path: Path) -> None:
    """Whatever a client is called, so the declaration alone says what it may do, and nobody stays in without it."""
    patterns = [pattern for some in role_patterns(STORE).values() for pattern in some]
    found = read(tmp_path, *(client_with(name) for name in ("admin", "writer", "a" * 40)))
    for name in ("admin", "writer", "a" * 40):
        wanted = client_certificate(client_with(name), STORE)
        assert len(wanted.common_name) <= 64
        names = [f"CN:{wanted.common_name}", *(f"URI:{uri}" for uri in wanted.uris)]
        fitting = [
            pattern
            for pattern in patterns
            if any(one == pattern or (pattern.endswith("*") and one.startswith(pattern[:-1])) for one in names)
        ]
        assert fitting == []
        client = found.of_certificate(names)
        assert client is not None
        assert client.name == name


def test_a_certificate_of_another_version_is_nobodys(tmp_path: Path) -> None:
    """The former key opens nothing any more, and neither does one that only opens the connection."""
    found = read(tmp_path, client_with(certificateVersion=2), client_with("ci", oidc=[CI]))
    for client, known in (
        (client_with(certificateVersion=2), True),
        (client_with(), False),
        (client_with("ci", oidc=[CI]), False),
    ):
        (uri,) = client_certificate(client, STORE).uris
        assert (found.of_certificate([f"URI:{uri}"]) is not None) is known


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"expiresAt": "2026-02-30T00:00:00Z"}, "which is no time"),
        ({"tables": ["a"]}, "spec.tables are of a writer"),
        ({"certificate": False}, "Nobody is known by it"),
        ({"oidc": [{"issuer": "https://x", "audience": "a"}]}, "names nobody"),
    ],
)
def test_what_contradicts_itself_is_left_out_alone(tmp_path: Path, spec: dict[str, Any], told: str) -> None:
    """The API server refuses most of it; objects may have been stored under other rules."""
    wrong, right = client_with("wrong", **spec), client_with()
    assert told in declare(STORE, [wrong, right]).refused["StateStoreClient", "data", "wrong"]
    assert list(read(tmp_path, wrong, right).all()) == ["dashboard"]


@pytest.mark.parametrize("tls", [{"mode": "none"}, {"mode": "secret", "secretName": "ours"}])
def test_a_store_without_certificates_of_each_client_has_none(tls: dict[str, Any]) -> None:
    found = declare(store_with({"managed": {}}, tls=tls), [client_with()])
    assert found.entries == {}
    assert f"is {tls['mode']}" in found.refused["StateStoreClient", "data", "dashboard"]
    assert "managed or certManager" in found.refused["StateStoreClient", "data", "dashboard"]


def test_of_two_with_one_identity_the_older_counts(tmp_path: Path) -> None:
    """Until it is deleted; the service would refuse the tokens of both."""
    older = client_with("z", oidc=[CI], metadata={"creationTimestamp": "2026-11-20T00:00:00Z"})
    newer = client_with("a", oidc=[{"issuer": "https://x", "audience": "b", "subject": "c"}, CI])
    found = declare(STORE, [newer, older])
    assert list(found.entries) == [("StateStoreClient", "data", "z")]
    assert "StateStoreClient z is known by the same identity" in found.refused["StateStoreClient", "data", "a"]
    gone = client_with("z", oidc=[CI], metadata={"deletionTimestamp": "2026-11-22T00:00:00Z"})
    assert list(read(tmp_path, gone, newer).all()) == ["a"]


def test_there_is_an_end_to_their_number_and_their_size(tmp_path: Path) -> None:
    """Those that are in force stay; the file fits into a ConfigMap, and is read by the service."""
    old = {"creationTimestamp": "2026-11-20T00:00:00Z"}
    many = [client_with(f"c{number}", metadata=old) for number in range(CLIENTS_MAX)]
    found = declare(STORE, [client_with("late"), *many])
    assert len(found.entries) == CLIENTS_MAX < CLIENTS_MAX_OF_FILE
    assert f"has {CLIENTS_MAX} declared clients" in found.refused["StateStoreClient", "data", "late"]
    assert len(read(tmp_path, *many).all()) == CLIENTS_MAX

    tables = [f"{number:03}é" + "x" * 200 for number in range(100)]
    large = [client_with(f"c{number}", role="writer", tables=tables, metadata=old) for number in range(50)]
    found = declare(STORE, large)
    size = sum(len(entry.encode()) for entry in found.entries.values())
    assert ENTRIES_BYTES_MAX * 0.9 < size <= ENTRIES_BYTES_MAX < 1 << 20
    assert 0 < len(found.refused) < 50
    assert len(read(tmp_path, *large).all()) == len(found.entries)


def test_a_change_of_clients_makes_no_other_pods() -> None:
    """The nodes read the file again, so it is in no template and in no hash."""
    entries = tuple(declare(STORE, [client_with()]).entries.values())
    without = meta_manifests(meta_with(), STORE, DEFAULTS).manifests
    found = meta_manifests(meta_with(), STORE, DEFAULTS, entries).manifests
    changed = [one["kind"] for one, other in zip(found, without, strict=True) if one != other]
    assert changed == ["ConfigMap"]


def test_a_file_has_an_entry_only_as_a_whole() -> None:
    """One with a line more, such as a revocation, is another one."""
    open_, revoked = (
        declare(STORE, [client_with(revoked=revoked)]).entries[place_of(client_with())] for revoked in (False, True)
    )
    other = declare(STORE, [client_with("dash")]).entries[place_of(client_with("dash"))]
    file = clients_file(meta_with(), [other, revoked])
    assert has_entry(file, "dashboard", revoked)
    assert not has_entry(file, "dashboard", open_)
    assert not has_entry(file, "dashboard", "")
    assert has_entry(file, "board", "")
    assert has_entry(clients_file(meta_with(), [open_, other]), "dashboard", open_)


NEAR = client_with(storeRef={"name": "shop", "namespace": "data"})
FAR = client_with(storeRef={"name": "shop", "namespace": "data"}, metadata={"namespace": "team"})


def test_a_client_of_another_namespace_needs_the_grant_of_the_store(tmp_path: Path) -> None:
    """It has its namespace in its name, so it is another one than the one of its name beside the store."""
    granting = store_with({"managed": {}}, allowedNamespaces=["team"])
    assert list(declare(STORE, [NEAR, FAR]).entries) == [place_of(NEAR)]
    assert list(declare(store_with({"managed": {}}, allowedNamespaces=["tea"]), [FAR]).entries) == []
    entries = declare(granting, [NEAR, FAR]).entries
    assert list(entries) == [place_of(NEAR), place_of(FAR)]
    file = tmp_path / "clients.toml"
    file.write_text(clients_file(meta_with(), tuple(entries.values())))
    found = {name: client.certificates for name, client in read_clients([str(file)]).all().items()}
    assert found == {
        "dashboard": ("URI:tussock://data/shop/client/dashboard/1",),
        "team/dashboard": ("URI:tussock://data/shop/client/team/dashboard/1",),
    }
    for client in (NEAR, FAR):
        (uri,) = client_certificate(client, granting).uris
        assert found[client_name(client)] == (f"URI:{uri}",)


@pytest.mark.parametrize(("role", "fits"), [("reader", True), ("writer", True), ("compactor", False), ("admin", False)])
def test_a_grant_is_for_use_and_not_for_management(role: str, fits: bool) -> None:
    """Beside the store every role is fine."""
    granting = store_with({"managed": {}}, allowedNamespaces=["team"])
    near, far = (
        client_with(role=role, storeRef={"name": "shop", "namespace": "data"}, metadata={"namespace": namespace})
        for namespace in ("data", "team")
    )
    found = declare(granting, [near, far])
    assert place_of(NEAR) in found.entries
    assert (place_of(FAR) in found.entries) is fits
    assert fits or "may be a reader or a writer" in found.refused[place_of(FAR)]


@pytest.mark.parametrize(("kind", "fits"), [("Issuer", False), ("ClusterIssuer", True)])
def test_an_issuer_of_one_namespace_issues_nothing_in_another(kind: str, fits: bool) -> None:
    tls = {"mode": "certManager", "issuerRef": {"name": "company", "kind": kind}}
    found = declare(store_with({"managed": {}}, tls=tls, allowedNamespaces=["team"]), [NEAR, FAR])
    assert place_of(NEAR) in found.entries
    assert (place_of(FAR) in found.entries) is fits
    assert fits or "Use a ClusterIssuer" in found.refused[place_of(FAR)]


def test_network_policies_let_clients_of_allowed_namespaces_in() -> None:
    """By the label of clients, to the service, its page and a managed bucket; without a grant nobody of elsewhere."""
    own = {"podSelector": {"matchLabels": {"tussock.dev/client": "shop"}}}
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["lab", "team"]}
    far = {"namespaceSelector": {"matchExpressions": [names]}, **own}
    for allowed in ([], ["team", "lab"]):
        store = store_with({"managed": {}}, allowedNamespaces=allowed)
        rules = {
            (policy["metadata"]["name"], rule["ports"][0]["port"]): rule["from"]
            for policy in network_policies(store, DEFAULTS)
            for rule in policy["spec"]["ingress"]
        }
        assert rules.keys() == {("shop-meta", 7370), ("shop-meta", 7371), ("shop-minio", 9000)}
        for peers in rules.values():
            assert own in peers
            assert (far in peers) is bool(allowed)


ACCOUNTS = store_with({"managed": {}}, allowedNamespaces=["team"], tokenReviews=True)


def test_service_accounts_are_those_of_the_namespace_of_the_client(tmp_path: Path) -> None:
    """A token is enough, then, and the certificate only opens the connection, unless the client says otherwise."""
    for namespace, name in (("data", "dashboard"), ("team", "team/dashboard")):
        spec = {"serviceAccounts": ["web", "web.blue"], "metadata": {"namespace": namespace}}
        far = {"storeRef": {"name": "shop", "namespace": "data"}}
        for certificate, ways in ((None, 0), (True, 1)):
            given = {} if certificate is None else {"certificate": certificate}
            client = client_with(**spec, **far, **given)
            file = tmp_path / "clients.toml"
            file.write_text(clients_file(meta_with(), tuple(declare(ACCOUNTS, [client]).entries.values())))
            (found,) = read_clients([str(file)]).all().values()
            assert found.name == name
            assert found.accounts == (f"{namespace}/web", f"{namespace}/web.blue")
            assert len(found.certificates) == ways


def test_a_service_account_is_one_client() -> None:
    """Of the store: the older counts. An account of that name elsewhere is another one."""
    older = client_with("z", serviceAccounts=["web"], metadata={"creationTimestamp": "2026-11-20T00:00:00Z"})
    newer = client_with("a", serviceAccounts=["api", "web"])
    far = client_with(
        "b", serviceAccounts=["web"], storeRef={"name": "shop", "namespace": "data"}, metadata={"namespace": "team"}
    )
    found = declare(ACCOUNTS, [newer, older, far])
    assert set(found.entries) == {place_of(older), place_of(far)}
    assert "StateStoreClient z is known by the same service account data/web" in found.refused[place_of(newer)]


def test_service_accounts_need_a_store_that_asks_about_tokens() -> None:
    """Or nobody would be let in by them, and nobody would say why."""
    client = client_with(serviceAccounts=["web"])
    assert "spec.tokenReviews of StateStore shop is false" in declare(STORE, [client]).refused[place_of(client)]


def test_nodes_ask_about_tokens_only_where_the_store_wants_it() -> None:
    """For the store's own audience, with a token of their account that other nodes do not have."""
    for store, audience in ((ACCOUNTS, "tussock://data/shop"), (STORE, None)):
        found = {one["kind"]: one for one in meta_manifests(meta_with(), store, DEFAULTS).manifests}
        settings = tomllib.loads(found["ConfigMap"]["data"]["meta.toml"])
        assert settings.get("accounts", {}).get("audience") == audience
        pod = found["Deployment"]["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is (audience is not None)
        assert pod["serviceAccountName"] == "shop-meta"
