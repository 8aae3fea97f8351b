"""Where the store keeps its objects: memory, a folder, or a bucket of S3, Google Cloud Storage or Azure.

The rest of the store knows only the protocol `ObjectStore`; `open_bucket` picks the implementation by the URL.
"""

from tussock.statestore.buckets.opening import open_bucket, open_source, refuse_bucket
from tussock.statestore.buckets.request_counter import RequestCounts

__all__ = ["RequestCounts", "open_bucket", "open_source", "refuse_bucket"]
