"""Keeps strangers out of a job's own traffic: a secret that driver and executors share, and Spark's settings for it.

Access to Spark's RPC port allows running code in the driver, and access to the blocks allows reading the rows. Network
policies keep others away if a cluster enforces them; this works everywhere. The secret is a file in both pods, by
settings that Spark reads only in Kubernetes, so it is in no variable, argument, setting or log.
"""

from typing import Any

from tussock.operator.manifests.labels import Manifest, metadata, secret_data
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
"""Users cannot set settings with these prefixes: of two settings of the same thing Spark may take the other one."""


def spark_secret_name(compute: str) -> str:
    """The Secret of the `Compute` of that name."""
    return f"{compute}-spark"


def spark_secret(compute: Compute, value: str) -> Manifest:
    """The Secret with the value that the caller drew: made once, and never again from a spec."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(compute, spark_secret_name(compute.name), compute.spec.store_ref.name, "compute"),
        "type": "Opaque",
        "data": secret_data({_KEY: value}),
    }


def spark_secret_volume(compute: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its volume and mount, for driver and executors."""
    secret = {"secretName": spark_secret_name(compute), "defaultMode": 0o440}
    return {"name": _VOLUME, "secret": secret}, {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}


def security_conf() -> dict[str, str]:
    """Spark's settings with which driver and executors authenticate each other and encrypt their traffic."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": f"{_FOLDER}/{_KEY}",
        "spark.network.crypto.enabled": "true",
        # The first version of the handshake, its predecessor (SASL), and the cipher without integrity checks exist only
        # for old clusters.
        "spark.network.crypto.saslFallback": "false",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        # People who may see the page of a job may still not end its queries there.
        "spark.ui.killEnabled": "false",
    }


def start_options(master: str) -> dict[str, str]:
    """The variable with what an executor has to know before it connects to the driver.

    An executor reads the secret's file only if its master is Kubernetes, and learns that from Spark only after it has
    connected. Spark numbers these variables from 0 on; this number does not collide.
    """
    return {"SPARK_JAVA_OPT_9999": f"-Dspark.master={master}"}
