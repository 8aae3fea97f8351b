"""URLs that open a bucket; and no message repeats a secret of a wrong one."""

from pathlib import Path

import pytest

from tussock.statestore.buckets import open_bucket
from tussock.statestore.buckets.urls import BucketUrl, parse_bucket_url, without_secrets
from tussock.statestore.errors import InvalidOption


@pytest.mark.parametrize(
    ("url", "parts", "plain"),
    [
        ("memory://", ("memory", "", ""), "memory://"),
        ("memory://name", ("memory", "name", ""), "memory://name"),
        ("memory://name/", ("memory", "name", ""), "memory://name"),
        ("file:///a/b", ("file", "", "/a/b"), "file:///a/b"),
        ("file:///a/b/", ("file", "", "/a/b"), "file:///a/b"),
        ("file:///a%20b@c", ("file", "", "/a b@c"), "file:///a%20b%40c"),
        ("s3://bucket", ("s3", "bucket", ""), "s3://bucket"),
        ("s3://my.bucket-1/a/b=1/", ("s3", "my.bucket-1", "a/b=1"), "s3://my.bucket-1/a/b=1"),
        ("gs://bucket/a", ("gs", "bucket", "a"), "gs://bucket/a"),
        ("az://container/a", ("az", "container", "a"), "az://container/a"),
    ],
)
def test_accepted_urls(url: str, parts: tuple[str, str, str], plain: str) -> None:
    """Each form, its parts, and the normalised form in messages."""
    assert parse_bucket_url(url) == BucketUrl(*parts)
    assert str(parse_bucket_url(url)) == plain


@pytest.mark.parametrize(
    "url",
    [
        *("", "bucket", "/data/state", "./state", "http://host/bucket", "S3:/bucket", "s3:bucket", "s3://", "s3:///a"),
        *("s3://bucket/../a", "s3://bucket/a//b", "s3://buck et", "s3://bucket/.hidden", "gs://", "az://", "file://"),
        *(
            "file://state",
            "file://host/a",
            "file:///a/../b",
            "file:///a?b",
            "file:state",
            "memory://a/b",
            "memory://a b",
        ),
        *("s3://bucket:99/a", "s3://bucket/a#b", "s3://bucket/a?b=c", "file:///a%00b", "s3://[bucket/a"),
    ],
)
def test_other_urls_are_refused_with_the_accepted_forms(url: str) -> None:
    """The message names the URL (without its query) and the forms that are accepted."""
    with pytest.raises(InvalidOption, match="Accepted forms: memory://, memory://NAME, file:///absolute/path") as error:
        open_bucket(url)
    assert repr(url.replace("#", "?").partition("?")[0])[:-1] in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:hush-hush@bucket/a",
        "s3://hush-hush@bucket",
        "memory://user:hush-hush@name",
        "gs://x:hush-hush@bucket/a@b",
        "s3:/AKIAKEY:hush-hush@bucket",
        "AKIAKEY:hush-hush@bucket",
        "s3://AKIAKEY:hush/hush-hush@bucket",
        "s3://bucket/a?secret=hush-hush",
        "https://bucket/a?X-Amz-Signature=hush-hush",
        "s3://bucket/a#hush-hush",
        "file:///a?key=hush-hush",
        "file://user:hush-hush@host/a",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    """They are found in any part of the URL."""
    with pytest.raises(InvalidOption) as error:
        open_bucket(url)
    assert "hush" not in str(error.value)
    assert "AKIA" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("deadline", [0, -1.0, float("nan"), float("inf"), 1e300, True])
def test_a_deadline_that_cannot_be_met_is_refused(deadline: float) -> None:
    """At opening, rather than at every request."""
    with pytest.raises(InvalidOption, match=r"deadline is .*; expected seconds"):
        open_bucket("memory://", deadline_seconds=deadline)


def test_a_folder_is_created_with_its_parents(tmp_path: Path) -> None:
    """Names with spaces too, as `Path.as_uri` writes them."""
    folder = tmp_path / "x" / "y z"
    open_bucket(folder.as_uri()).put("a", b"")
    assert (folder / "a").is_file()


def test_secrets_in_a_text_are_masked() -> None:
    """User names, passwords and queries of URLs in the library's messages."""
    text = "GET https://user:hush@host/a?sig=hush&x=1 (then 'http://host:80/b?hush') failed"
    assert without_secrets(text) == "GET https://***@host/a?*** (then 'http://host:80/b?***') failed"
