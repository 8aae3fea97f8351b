"""Computation on the store: Spark's jobs, and applications of transactional procedures.

Floors, from below: `applications` (what the layers share: input log, delta, feeds, recovery), `service` (an application
behind a port, and its clients), `procedures` (the layer of procedures over streams, windows and tables), `spark` (the
format `tussock`, `foreachBatch`, state, joins, and applications that run in its tasks), and `driver`, which runs a
Spark program on Kubernetes. Only `spark` and `driver` import pyspark.
"""
