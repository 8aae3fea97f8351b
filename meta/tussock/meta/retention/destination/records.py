"""Bytes in a destination: its catalogue, and the manifest of each copy. `docs/formats/destination.md` lists them all.

Frozen, because they are on disk. Both have the frame of the log's objects, and with it the log's format version: a
manifest has a version of the store in it.
"""

import re

import msgspec

from tussock.meta.log.format import CATALOGUE_MAGIC, MANIFEST_MAGIC, decode_record, encode_record
from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.contract.copies import CopyInfo
from tussock.statestore.errors import CorruptLog

__all__ = [
    "Catalogue",
    "Manifest",
    "catalogue_path",
    "decode_catalogue",
    "decode_manifest",
    "encode_catalogue",
    "encode_manifest",
    "is_half_of_part",
    "is_manifest_path",
    "manifest_path",
    "part_folder",
    "part_of",
]

_OF_PART = re.compile(r"parts/([0-9]{20})/(?:manifest|sst/[0-9a-f]{32}\.(?:data|meta))", re.ASCII)
_PART_FOLDER = re.compile(r"parts/[0-9]{20}/(?:sst/)?\.", re.ASCII)


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """Which copies are in a destination: the newest entry says all."""

    seq: int = 0
    """0: nothing was ever copied there."""
    id: bytes = b""
    """16 random bytes, by which a writer whose create was answered with an error knows its own entry again."""
    follows: bytes = b""
    """The id of the entry before."""
    writer: str = ""
    at_ms: int = 0
    store: str = ""
    """Identity of the store whose backups are copied there."""
    url: str = ""
    """Where that store was, for people."""
    copies: dict[str, CopyInfo] = {}
    """By name; those being made too."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A copy: all that a restore needs beside the SSTs, which are all there once this is."""

    info: BackupInfo
    """The backup, as the store had it."""
    version: Version
    places: dict[str, tuple[int, bytes]]
    """By SST id: the part in whose folder it lies, and SHA-256 over its blocks and its meta."""


_CATALOGUE = msgspec.msgpack.Decoder(Catalogue)
_MANIFEST = msgspec.msgpack.Decoder(Manifest)


def catalogue_path(seq: int) -> str:
    """Path of an entry of the catalogue."""
    return f"catalogue/{seq:020d}"


def part_folder(part: int) -> str:
    """The folder of what one copy has brought, with a `/` at its end."""
    return f"parts/{part:020d}/"


def manifest_path(part: int) -> str:
    """Path of the manifest of the copy that has this part."""
    return f"{part_folder(part)}manifest"


def part_of(path: str) -> int | None:
    """The part of an object that a copy may have brought; `None` for any other name, which is foreign."""
    found = _OF_PART.fullmatch(path)
    return int(found[1]) if found else None


def is_half_of_part(path: str) -> bool:
    """Whether a half-written file lies where a part's objects are."""
    return _PART_FOLDER.match(path) is not None


def is_manifest_path(path: str) -> bool:
    """Whether a path is one that `manifest_path` gives."""
    return part_of(path) is not None and path.endswith("/manifest")


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """The bytes of an entry of the catalogue."""
    return encode_record(CATALOGUE_MAGIC, catalogue.seq, catalogue)


def decode_catalogue(path: str, seq: int, data: bytes) -> Catalogue:
    """The entry in `data`; `CorruptLog` if it is not the intact one of `seq`."""
    return decode_record(_CATALOGUE, path, CATALOGUE_MAGIC, seq, data)


def encode_manifest(part: int, manifest: Manifest) -> bytes:
    """The bytes of a manifest; its sequence field is the part."""
    return encode_record(MANIFEST_MAGIC, part, manifest)


def decode_manifest(path: str, part: int, data: bytes) -> Manifest:
    """The manifest in `data`; `CorruptLog` if it is damaged, not that of `part`, or says not where each SST is."""
    manifest = decode_record(_MANIFEST, path, MANIFEST_MAGIC, part, data)
    unplaced = sorted({sst.id for sst in manifest.version.ssts()} - manifest.places.keys())
    if unplaced:
        raise CorruptLog(f"{path}: it does not say where SST {unplaced[0]} is ({len(unplaced)} such)")
    return manifest
