"""The reported cause of a failed application is its own error, without the layers of Spark and the JVM bridge."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tussock.compute.driver.failures import (
    CAUSE_CHARACTERS_MAX,
    MESSAGE_BYTES_MAX,
    cause_of,
    committed_line,
    termination_message,
)
from tussock.compute.spark.batches.commits import Commit

STREAM_FAILED = """[STREAM_FAILED] Query [id = 9f6, runId = 77a] terminated with exception: \
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. \
Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/opt/spark/python/py4j/clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/app.py", line 9, in batch
    raise ValueError("price of order 4711 is negative")
ValueError: price of order 4711 is negative
. SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy."""
NO_MEMORY = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.IllegalArgumentException: System memory 268435456 must be at least 471859200. Please increase heap.
\tat org.apache.spark.memory.UnifiedMemoryManager$.getMaxMemory(UnifiedMemoryManager.scala:246)"""
WRAPPED = """An error occurred while calling o55.load.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.X.y(X.scala:1)
Caused by: java.io.IOException: outer
\tat org.apache.spark.X.y(X.scala:1)
Caused by: java.net.ConnectException: Connection refused"""
OF_A_TASK = """An error occurred while calling o55.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/tussock/client.py", line 1, in call
tussock.statestore.errors.MetaUnavailable: no meta node at tussock://s answers

\tat org.apache.spark.api.python.BasePythonRunner"""
TWICE = """Traceback (most recent call last):
  File "a.py", line 1
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3
RuntimeError: no row for 'a'
"""

CAUSES = {
    "of a function of foreachBatch": (RuntimeError(STREAM_FAILED), "ValueError: price of order 4711 is negative"),
    "of the JVM": (
        RuntimeError(NO_MEMORY),
        "java.lang.IllegalArgumentException: System memory 268435456 must be at least 471859200. Please increase heap.",
    ),
    "of the JVM, with causes": (
        RuntimeError(WRAPPED),
        "org.apache.spark.SparkException: Job aborted.; caused by java.net.ConnectException: Connection refused",
    ),
    "of a task": (RuntimeError(OF_A_TASK), "MetaUnavailable: no meta node at tussock://s answers"),
    "the last of several": (RuntimeError(TWICE), "RuntimeError: no row for 'a'"),
    "of Python": (ValueError("\n\n  first  \nsecond"), "ValueError: first"),
    "without words": (KeyError(), "KeyError: "),
    "a traceback that was cut off": (RuntimeError("x\nTraceback (most recent call last):"), "RuntimeError: x"),
}


@pytest.mark.parametrize(("error", "cause"), CAUSES.values(), ids=CAUSES)
def test_the_cause_is_the_error_of_the_users_program(error: Exception, cause: str) -> None:
    assert cause_of(error) == cause


def test_the_termination_message_is_bounded() -> None:
    """In bytes, as the kubelet counts them; the cause is kept whole before the trace gets the rest."""
    assert len(cause_of(ValueError("x" * 9999))) == CAUSE_CHARACTERS_MAX
    try:
        raise ValueError("ü" * 9999)
    except ValueError as error:
        told = termination_message(error)
    assert len(told.encode()) <= MESSAGE_BYTES_MAX
    assert len(told.encode()) + len(committed_line(Commit("w", 2**63, 2**63, 10**13))) <= 4096, "a kubelet's limit"
    assert told.startswith("ValueError: üü")


PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false"){conf}.getOrCreate()
def batch(rows, number):
    raise ValueError("price of order 4711 is negative")
spark.readStream.format("rate").load().writeStream.foreachBatch(batch).start().awaitTermination()
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("conf", "says"),
    [
        pytest.param("", "ValueError: price of order 4711 is negative", id="foreachBatch"),
        pytest.param('.config("spark.testing.memory", "1000")', "must be at least 471859200", id="heap"),
    ],
)
def test_a_real_driver_leaves_the_cause_for_the_status(tmp_path: Path, conf: str, says: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(conf=conf))
    environ = {**os.environ, "TUSSOCK_TERMINATION_FILE": str(tmp_path / "said"), "TUSSOCK_STATUS_PORT": "0"}
    command = [sys.executable, "-m", "tussock.compute.driver", str(tmp_path / "program.py")]
    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 1, ended.stderr
    assert says in (tmp_path / "said").read_text().splitlines()[0]
