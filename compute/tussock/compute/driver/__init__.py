"""Runs a Spark application as the driver of a `Compute`: `python -m tussock.compute.driver FILE [ARGUMENTS]`.

The application is an ordinary PySpark program, in the same process. Around it this package starts Spark with the
operator's settings, brings the number of executors to what the resource asks for while the job runs, answers probes,
and on SIGTERM lets streams end between two batches. `docs/operator/compute.md` tells what users see of it.
"""
