#!/usr/bin/env python3
"""Read an archive, or single segments, with fastavro: a reader that knows nothing of Tapedeck.

usage: readback.py [--count] PATH...

PATH is a segment or a directory that is searched for *.avro (below _tapedeck nothing is read). Prints one JSON line per
record, in the order of (topic, partition, start, record): topic, partition, offset, timestamp (ms), timestampType, key, value (base64 or
null), headers (list of [key, base64 or null]) and the object it came from. --count prints one line per object instead:
path, records, and the header's start, next and count.

Needs: pip install fastavro==1.13.1 backports.zstd cramjam
"""

import argparse
import base64
import json
import os
import sys

import fastavro
import fastavro.read

# Kafka allows any 64-bit timestamp; Python's datetime does not. Keep the number.
fastavro.read.LOGICAL_READERS.pop("long-timestamp-millis", None)


def segments(paths):
    """Yield the paths of all segments, in order."""
    for path in paths:
        if os.path.isfile(path):
            yield path
            continue
        if not os.path.isdir(path):
            sys.exit(f"readback: {path}: no such file or directory")
        found = []
        for folder, folders, files in os.walk(path):
            folders[:] = [f for f in folders if f != "_tapedeck"]
            found += [os.path.join(folder, f) for f in files if f.endswith(".avro")]
        yield from sorted(found, key=order)


def order(path):
    """topic, partition and start, as numbers where they are."""
    topic, partition, start = os.path.basename(path)[: -len(".avro")].rsplit("+", 2)
    return topic, int(partition), int(start)


def b64(value):
    return None if value is None else base64.b64encode(value).decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true", help="one line per object: path, records, header")
    parser.add_argument("path", nargs="+")
    args = parser.parse_args()
    out = sys.stdout
    for path in segments(args.path):
        with open(path, "rb") as f:
            reader = fastavro.reader(f)
            n = 0
            for r in reader:
                n += 1
                if args.count:
                    continue
                line = {
                    "topic": r["topic"],
                    "partition": r["partition"],
                    "offset": r["offset"],
                    "timestamp": r["timestamp"],
                    "timestampType": r["timestampType"],
                    "key": b64(r["key"]),
                    "value": b64(r["value"]),
                    "headers": [[h["key"], b64(h["value"])] for h in r["headers"]],
                    "object": path,
                }
                out.write(json.dumps(line) + "\n")
            meta = reader.metadata
            if n != int(meta["tapedeck.count"]):
                sys.exit(f"readback: {path}: {n} records, the header says {meta['tapedeck.count']}")
            if args.count:
                header = {k: int(meta["tapedeck." + k]) for k in ("start", "next", "count")}
                out.write(json.dumps({"object": path, "records": n, **header}) + "\n")


if __name__ == "__main__":
    main()
