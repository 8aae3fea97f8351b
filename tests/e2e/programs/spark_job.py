"""Runs as a Spark driver: write a thousand rows into a table of the platform, and read them back by Spark."""

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as spark_functions

import tussock.compute.spark as ts
from tussock.statestore import connect

url = sys.argv[1]
with connect(url) as store:
    schema = pa.schema([("id", pa.int64()), ("host", pa.string())])
    store.create_table("numbers", schema=schema, primary_key=["id"])

spark = SparkSession.builder.appName("tussock-e2e").getOrCreate()
ts.register(spark)


def named(number):
    """A row with the name of the machine that computes it."""
    import socket

    return number, socket.gethostname()


numbers = spark.sparkContext.parallelize(range(1000), 2)
rows = spark.createDataFrame(numbers.map(named), "id bigint, host string")
rows.write.format("tussock").mode("append").option("store", url).save("numbers")
read = spark.read.format("tussock").option("store", url).load("numbers")
found = read.agg(
    spark_functions.count("id").alias("rows"),
    spark_functions.sum("id").alias("sum"),
    spark_functions.collect_set("host").alias("hosts"),
).first()
spark.stop()
print(json.dumps(found.asDict()))
