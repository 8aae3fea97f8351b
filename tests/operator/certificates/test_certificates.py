"""Certificates of a store: issued, renewed in time, and trusted by all pods while the CA changes."""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from cryptography import x509

from support.network.certificates import Authority
from support.operator.resources import DEFAULTS, store_with
from support.service.encrypted_meta import meta_with
from support.service.meta_process import MetaProcess
from tussock.operator.certificates.issue import certificates_in, issue, new_authority, was_issued_by
from tussock.operator.certificates.renewal import SETTLE, first_end, is_due, renew_certificates
from tussock.operator.manifests.certificates import (
    CA_SECONDS,
    LEAF_SECONDS,
    Certificate,
    cert_manager_manifests,
    desired_certificates,
)
from tussock.operator.manifests.labels import secret_data
from tussock.operator.manifests.transport_security import ROLES, Identity, role_patterns, server_name, tls_secret
from tussock.statestore import connect
from tussock.statestore.errors import AccessDenied, MetaUnavailable

START = datetime(2030, 1, 1, tzinfo=UTC)
STORE = store_with({"managed": {}})
WANTED = desired_certificates(STORE, ("shop",), DEFAULTS)

Secrets = dict[str, dict[str, str]]


def renew(secrets: Secrets, now: datetime) -> list[str]:
    """Apply what is due; returns the names of the written secrets."""
    manifests = renew_certificates(STORE, WANTED, secrets, now)
    secrets.update({manifest["metadata"]["name"]: manifest["data"] for manifest in manifests})
    return [manifest["metadata"]["name"] for manifest in manifests]


def file_of(secrets: Secrets, secret: str, name: str) -> str:
    return base64.b64decode(secrets[secret][name]).decode()


def leaf(secrets: Secrets, secret: str = "shop-meta-tls") -> x509.Certificate:
    return certificates_in(file_of(secrets, secret, "tls.crt"))[0]


def trust(secrets: Secrets, secret: str) -> Sequence[x509.Certificate]:
    return certificates_in(file_of(secrets, secret, "ca.crt"))


def test_first_issue_makes_everything_and_then_nothing_is_due() -> None:
    """A CA and a certificate for each identity; a second run does nothing."""
    secrets: Secrets = {}
    assert is_due(STORE, WANTED, secrets, START)
    assert renew(secrets, START) == ["shop-ca", *(one.secret for one in WANTED)]
    assert not is_due(STORE, WANTED, secrets, START)
    assert renew(secrets, START) == []
    assert first_end(WANTED, secrets) == START + timedelta(seconds=LEAF_SECONDS)
    assert first_end(WANTED, {}) is None


def test_certificates_say_what_they_are_for() -> None:
    """The service's has the names of the store and its Services; a client's has its role, and cannot serve."""
    secrets: Secrets = {}
    renew(secrets, START)
    names = leaf(secrets).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        *("shop-meta.data.svc", "shop-meta", "shop-meta.data", "shop-meta.data.svc.cluster.local", "localhost")
    ]
    usages = {
        one.secret: leaf(secrets, one.secret).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        for one in WANTED
    }
    server, client = x509.ExtendedKeyUsage([x509.OID_SERVER_AUTH]), x509.ExtendedKeyUsage([x509.OID_CLIENT_AUTH])
    assert usages == {name: server if name == "shop-meta-tls" else client for name in usages}
    patterns = {pattern for patterns in role_patterns(STORE).values() for pattern in patterns}
    clients = [leaf(secrets, one.secret) for one in WANTED if not one.is_server]
    uris = [client.extensions.get_extension_for_class(x509.SubjectAlternativeName).value for client in clients]
    uris = [names.get_values_for_type(x509.UniformResourceIdentifier) for names in uris]
    names = {f"CN:{one.common_name}" for one in WANTED if not one.is_server}
    assert patterns == names | {f"URI:{uri}{below}" for [uri] in uris for below in ("", "/*")}


def test_no_pod_gets_the_key_of_the_ca() -> None:
    """The key is only in a separate secret."""
    secrets: Secrets = {}
    renew(secrets, START)
    key = secrets["shop-ca"]["tls.key"]
    assert [name for name, data in secrets.items() if key in data.values()] == ["shop-ca"]


def test_a_certificate_is_renewed_at_two_thirds_of_its_life() -> None:
    """It gets a new key; other certificates and the CA stay."""
    secrets: Secrets = {}
    renew(secrets, START)
    before = dict(secrets)
    assert renew(secrets, START + timedelta(seconds=LEAF_SECONDS * 0.6)) == []
    later = START + timedelta(seconds=LEAF_SECONDS * 0.7)
    assert renew(secrets, later) == [one.secret for one in WANTED]
    assert secrets["shop-ca"] == before["shop-ca"]
    assert all(secrets[one.secret]["tls.key"] != before[one.secret]["tls.key"] for one in WANTED)


@pytest.mark.parametrize(
    "damage",
    [
        lambda secrets: secrets.pop("shop-meta-tls"),
        lambda secrets: secrets["shop-meta-tls"].update({"tls.crt": "bm90IGEgY2VydGlmaWNhdGU="}),
        lambda secrets: secrets["shop-meta-tls"].update({"tls.crt": "%"}),
        lambda secrets: secrets["shop-meta-tls"].update({"tls.key": secrets["shop-compactor-tls"]["tls.key"]}),
        lambda secrets: secrets["shop-meta-tls"].update({"ca.crt": secrets["shop-meta-tls"]["tls.crt"]}),
        lambda secrets: secrets["shop-meta-tls"].update(secrets["shop-compactor-tls"]),
    ],
    ids=["absent", "no certificate", "no base64", "another key", "another CA", "another's"],
)
def test_only_a_wrong_certificate_is_renewed(damage: Any) -> None:
    """A user may have changed anything in a secret by hand."""
    secrets: Secrets = {}
    renew(secrets, START)
    damage(secrets)
    assert is_due(STORE, WANTED, secrets, START)
    assert renew(secrets, START) == ["shop-meta-tls"]


def test_a_new_meta_name_renews_the_certificate_of_the_service() -> None:
    """The service's certificate is renewed, the clients' stay."""
    secrets: Secrets = {}
    renew(secrets, START)
    wanted = desired_certificates(STORE, ("shop", "second"), DEFAULTS)
    assert [found["metadata"]["name"] for found in renew_certificates(STORE, wanted, secrets, START)] == [
        "shop-meta-tls"
    ]


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
def test_a_damaged_ca_is_replaced_with_its_certificates(name: str) -> None:
    """It could issue nothing more."""
    secrets: Secrets = {}
    renew(secrets, START)
    secrets["shop-ca"][name] = "AAAA"
    assert renew(secrets, START) == ["shop-ca", *(one.secret for one in WANTED)]


def test_all_pods_trust_each_other_while_the_ca_changes() -> None:
    """At each step of more than ten years, a pod with former files and one with new files trust each other."""
    secrets: Secrets = {}
    renew(secrets, START)
    former = {name: dict(data) for name, data in secrets.items()}
    issuers = {file_of(secrets, "shop-ca", "tls.crt")}
    now, step = START, timedelta(days=5)
    while now < START + timedelta(seconds=CA_SECONDS * 1.2):
        now += step
        written = renew(secrets, now)
        assert renew(secrets, now) == []
        if written:
            for reader, signer in ((former, secrets), (secrets, former), (secrets, secrets)):
                for one in WANTED:
                    bundle = [ca for ca in trust(reader, one.secret) if ca.not_valid_after_utc > now]
                    assert all(
                        any(was_issued_by(leaf(signer, other.secret), ca) for ca in bundle) for other in WANTED
                    ), (now, written)
            former = {name: dict(data) for name, data in secrets.items()}
        assert min(leaf(secrets, one.secret).not_valid_after_utc for one in WANTED) > now + SETTLE
        issuers.add(file_of(secrets, "shop-ca", "tls.crt"))
    assert len(issuers) == 2
    assert len(trust(secrets, "shop-meta-tls")) == 1


def test_an_expired_ca_is_replaced_at_once() -> None:
    """After years without an operator there is no trust left to wait for."""
    secrets: Secrets = {}
    renew(secrets, START)
    assert renew(secrets, START + timedelta(seconds=CA_SECONDS * 2)) == ["shop-ca", *(one.secret for one in WANTED)]


def test_a_certificate_without_the_name_of_its_store_is_renewed() -> None:
    """Earlier operators issued such ones; until kubelets bring the new ones, nodes know them by their common name."""
    secrets: Secrets = {}
    earlier = [one._replace(uris=()) for one in WANTED]
    secrets = {found["metadata"]["name"]: found["data"] for found in renew_certificates(STORE, earlier, {}, START)}
    assert renew(secrets, START) == [one.secret for one in WANTED if not one.is_server]
    assert "CN:tussock-writer" in role_patterns(STORE)["writer"]


def test_with_a_shared_issuer_only_the_name_of_the_store_counts() -> None:
    """The URI has the name; anybody's certificate may have the common name."""
    store = store_with({"managed": {}}, tls={"mode": "certManager", "issuerRef": {"name": "all"}})
    ours = {role: f"URI:tussock://data/shop/{role}" for role in ROLES}
    assert role_patterns(store) == {role: [name, f"{name}/*"] for role, name in ours.items()}
    wanted = desired_certificates(store, ("shop",), DEFAULTS)
    asked = {one["spec"]["secretName"]: one["spec"] for one in cert_manager_manifests(store, wanted)}
    assert asked["shop-client-admin-tls"]["uris"] == ["tussock://data/shop/admin"]
    assert "dnsNames" not in asked["shop-client-admin-tls"]
    assert "uris" not in asked["shop-meta-tls"]


@pytest.mark.parametrize("identity", get_args(Identity)[1:])
def test_a_certificate_of_another_store_of_the_issuer_is_refused(tmp_path: Path, identity: Identity) -> None:
    """Another store's certificate is refused even with the common name `tussock-admin`, which any tenant can get."""
    tls = {"mode": "certManager", "issuerRef": {"name": "all"}}
    store = store_with({"managed": {}}, tls=tls)
    authority = new_authority("the issuer of all", datetime.now(UTC), CA_SECONDS)

    def issue_secret(wanted: Certificate) -> dict[str, str]:
        pair = issue(authority, wanted, datetime.now(UTC))
        return secret_data({"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate})

    wanted = {one.secret: one for one in desired_certificates(store, ("shop",), DEFAULTS)}
    shown = wanted[tls_secret(store, identity)]
    others = {"another namespace": "tussock://other/shop/", "another store": "tussock://data/shop2/"}
    stolen = {
        name: shown._replace(uris=tuple(uri.replace("tussock://data/shop/", begins) for uri in shown.uris))
        for name, begins in others.items()
    }
    stolen["a name that begins so"] = shown._replace(uris=(f"{shown.uris[0]}2",))
    stolen["a common name alone"] = shown._replace(uris=(), dns_names=(shown.common_name,))
    secrets = {name: issue_secret(one) for name, one in wanted.items()}
    own = shown._replace(uris=(f"{shown.uris[0]}/of-one-client",))
    with meta_with(secrets, store, tmp_path) as opened:
        opened(identity, deadline=5).close()
        for file, content in issue_secret(own).items():
            (tmp_path / shown.secret / file).write_bytes(base64.b64decode(content))
        opened(identity, deadline=5).close()
        for certificate in stolen.values():
            for file, content in issue_secret(certificate).items():
                (tmp_path / shown.secret / file).write_bytes(base64.b64decode(content))
            with pytest.raises(AccessDenied, match=r"has no role"):
                opened(identity, deadline=5)


def test_no_certificates_are_issued_if_the_user_provides_them() -> None:
    """Without TLS, and with a secret of the user."""
    for tls in ({"mode": "none"}, {"mode": "secret", "secretName": "mine"}):
        store = store_with({"managed": {}}, tls=tls)
        assert desired_certificates(store, ("shop",), DEFAULTS) == ()
        assert not is_due(store, (), {}, START)


def test_a_platform_runs_on_the_issued_certificates(tmp_path: Path) -> None:
    """A real service accepts a writer under the store's one name; it refuses a reader's table, and another name."""
    secrets: Secrets = {}
    renew(secrets, datetime.now(UTC))
    with meta_with(secrets, STORE, tmp_path) as opened:
        with opened("client-writer", deadline=5) as store:
            store.create_table("kv")
        with opened("client-reader", deadline=5) as store, pytest.raises(AccessDenied):
            store.create_table("other")
        with pytest.raises(MetaUnavailable):
            opened("client-writer", deadline=5, tls_server_name="another-meta.data.svc")


def test_the_users_one_certificate_may_do_everything(tmp_path: Path) -> None:
    """With `mode: secret` nodes serve with it, clients show it, and its required name identifies it."""
    store = store_with({"managed": {}}, tls={"mode": "secret", "secretName": "ours"})
    authority = Authority(tmp_path)
    own = authority.sign("ours", names=f"DNS:{server_name(store)}")
    other = authority.sign("other", names="DNS:other-meta.data.svc")
    files = ("--tls.certificate", own.certificate, "--tls.key", own.key, "--tls.client-ca", authority.certificate)
    roles = [part for role, names in role_patterns(store).items() for part in (f"--tls.roles.{role}", *names)]
    with MetaProcess((tmp_path / "bucket").as_uri(), *map(str, files), *roles) as meta:
        meta.wait_until_it_leads()
        shown = {"tls_ca": str(authority.certificate), "tls_server_name": server_name(store)}
        with connect(meta.url, **shown, tls_cert=str(own.certificate), tls_key=str(own.key)) as opened:
            opened.create_table("kv")
        with pytest.raises(AccessDenied):
            connect(meta.url, **shown, tls_cert=str(other.certificate), tls_key=str(other.key))
