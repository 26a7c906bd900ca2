#!/usr/bin/env python3
"""Read segments with DuckDB's Avro extension: print one JSON line per record, in the order of (partition, offset).

usage: duckdb_readback.py 'GLOB of segments'

Needs: pip install duckdb==1.4.4 duckdb-ext-avro==1.4.4.20260205. The extension reads the codecs null, deflate and snappy, not zstandard.
"""

import base64
import datetime
import glob
import json
import os
import sys
import sysconfig

import duckdb


def b64(value):
    return None if value is None else base64.b64encode(value).decode()


def millis(t):
    """The timestamp in ms, whether or not the extension makes a timestamp of Avro's logical type."""
    if isinstance(t, datetime.datetime):
        return (t - datetime.datetime(1970, 1, 1)) // datetime.timedelta(milliseconds=1)
    return t


def main():
    found = glob.glob(os.path.join(sysconfig.get_path("purelib"), "duckdb_ext/extensions/*/*/avro.duckdb_extension"))
    if not found:
        sys.exit("duckdb_readback: the package duckdb-ext-avro is not installed")
    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    con.execute(f"LOAD '{found[0]}'")
    rows = con.execute(
        'select topic, partition, "offset", "timestamp", timestampType, "key", "value", headers '
        'from read_avro(?) order by topic, partition, "offset"',
        [sys.argv[1]],
    )
    for topic, partition, offset, timestamp, kind, key, value, headers in rows.fetchall():
        print(json.dumps({
            "topic": topic, "partition": partition, "offset": offset, "timestamp": millis(timestamp), "timestampType": kind,
            "key": b64(key), "value": b64(value), "headers": [[h["key"], b64(h["value"])] for h in headers],
        }))


main()
