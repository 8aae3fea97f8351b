"""Runs a Spark application as the driver of a `Compute`: `python -m tussock.compute.driver FILE [ARGUMENTS]`.

The application is an ordinary PySpark program in the same process. Around it, this package starts Spark with the
operator's settings, keeps the number of executors at what the resource asks for, answers probes, and on SIGTERM lets
each stream finish its batch. `docs/operator/compute.md` describes what users see of it.
"""
