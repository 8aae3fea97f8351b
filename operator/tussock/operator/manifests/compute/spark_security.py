"""What keeps strangers out of a job's own traffic: a secret that driver and executors share, and what Spark does by it.

Whoever may speak to Spark's RPC port runs code in the driver, and whoever reads the blocks reads the rows. Network
policies keep others away where a cluster enforces them; this does so everywhere. The secret is a file in both pods, by
settings that Spark reads in Kubernetes only, so it is in no variable, argument, setting or log.
"""

from typing import Any

from tussock.operator.manifests.labels import Manifest, encoded, metadata
from tussock.operator.resources.compute import Compute

__all__ = [
    "OVERRULED",
    "SECRET_BYTES",
    "security_conf",
    "spark_secret",
    "spark_secret_name",
    "spark_secret_volume",
    "start_options",
]

SECRET_BYTES = 32
_FOLDER = "/etc/tussock/spark"
_KEY = "secret"
_VOLUME = "spark"

OVERRULED = ("spark.authenticate", "spark.network.crypto.", "spark.ui.killEnabled")
"""What these begin with is nobody's to set: of two settings of one thing Spark may take the other."""


def spark_secret_name(compute: str) -> str:
    """The Secret of the `Compute` called so."""
    return f"{compute}-spark"


def spark_secret(compute: Compute, value: str) -> Manifest:
    """The Secret with what the caller drew: made once, and never again from a spec."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(compute, spark_secret_name(compute.name), compute.spec.store_ref.name, "compute"),
        "type": "Opaque",
        "data": encoded({_KEY: value}),
    }


def spark_secret_volume(compute: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Volume and mount of driver and executors."""
    secret = {"secretName": spark_secret_name(compute), "defaultMode": 0o440}
    return {"name": _VOLUME, "secret": secret}, {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}


def security_conf() -> dict[str, str]:
    """Spark's settings by which driver and executors know each other, and encrypt what they send."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": f"{_FOLDER}/{_KEY}",
        "spark.network.crypto.enabled": "true",
        # The first version of the handshake, the one before it (SASL), and the cipher that notices no change, are there
        # for old clusters.
        "spark.network.crypto.saslFallback": "false",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        # Who sees the page of a job may still not end its queries there.
        "spark.ui.killEnabled": "false",
    }


def start_options(master: str) -> dict[str, str]:
    """The variable with what an executor has to know before the driver tells it anything.

    An executor reads the secret's file only if its master is Kubernetes, and Spark does not tell it so until it is
    connected. Spark numbers these variables from 0 on; this one is out of their way.
    """
    return {"SPARK_JAVA_OPT_9999": f"-Dspark.master={master}"}
