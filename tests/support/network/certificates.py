"""A certificate authority for one test, and its certificates, made by the `openssl` command."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A CA, kept in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl on the PATH to make certificates with (Debian: apt-get install openssl)")
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        self.certificate = self._folder / "ca.pem"
        self._key = self._folder / "ca.key"
        _openssl("req", "-x509", *_fresh(self._key), "-out", self.certificate, "-subj", f"/CN={name}")

    def sign(self, name: str, subject: str = "", names: str = "IP:127.0.0.1,DNS:localhost") -> Pair:
        """Make a certificate and key in files of that name, which replace older ones; the key first, then the other."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}")
        _openssl("req", *_fresh(pair.key), "-out", request, "-subj", subject or f"/CN={name}")
        issuer = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *issuer, "-days", "2", "-out", pair.certificate)
        return pair


def serial_number(certificate: bytes) -> str:
    """The serial number of a certificate (PEM), unique within its authority."""
    asked = ["openssl", "x509", "-noout", "-serial"]
    return subprocess.run(asked, input=certificate, check=True, capture_output=True, timeout=60).stdout.decode().strip()


def _fresh(key: Path) -> tuple[str | Path, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
