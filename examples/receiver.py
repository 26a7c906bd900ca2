#!/usr/bin/env python3
"""A receiver of replays: prints each record as a line of JSON. It speaks docs/receiver-protocol.md, and needs Python 3.10 and fastavro; examples/README.md has
the commands. Sessions are in memory: after a restart the replayer opens its session again, and everything is sent and printed once more."""
import base64, io, json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from fastavro import read, reader, schemaless_writer
from xxh64 import xxh64_intdigest  # beside this file; the module xxhash has the same and is faster

read.LOGICAL_READERS.pop("long-timestamp-millis")  # Kafka takes any 64-bit timestamp, datetime does not: keep the number
PORT, PIPELINE, INPUTS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
SESSIONS, LOCK = {}, threading.Lock()


def take(record):  # whatever is to be done with a record; each comes once, in offset order within its partition
    print(json.dumps(record, default=lambda b: base64.b64encode(b).decode()), flush=True)


def status(name, s):
    return 200, {"name": name, "pipeline": PIPELINE, "sender": s["request"].get("sender", ""), "epoch": s["epoch"], "state": s["state"], "progress": [
        {k: v for k, v in p.items() if k != "range"} | {"checksum": "%016x" % p["checksum"]} for p in s["parts"].values()]}


def open_session(name, request):
    epoch = request.pop("epoch")
    s = SESSIONS.setdefault(name, {"request": request, "epoch": epoch, "state": "OPEN", "parts": {(r["topic"], r["partition"]): {
        "range": r, "topic": r["topic"], "partition": r["partition"], "expected": r["from"], "count": 0, "first": -1, "last": -1, "checksum": 0} for r in request["ranges"]}})
    if request != s["request"] or epoch < s["epoch"]:
        return 409, {"message": "another request, or a newer replayer, has the name " + name}
    s["epoch"] = epoch
    return status(name, s)


def segment(s, topic, partition, start, data):
    p = s["parts"][topic, partition]
    file = reader(io.BytesIO(data))
    log = [file.metadata["tapedeck." + key] for key in ("topic", "partition", "start", "topic.id", "isolation")]
    if log != [topic, str(partition), str(start), p["range"]["topicId"], p["range"]["isolation"]]:
        return 422, {"message": "the segment is of %s" % log}
    if start > p["expected"]:
        return 409, {"expected": p["expected"], "message": "a skip"}
    for r in list(file):  # first to its end: nothing is taken of a segment that is damaged
        if p["expected"] <= r["offset"] < p["range"]["until"]:
            datum = io.BytesIO()
            schemaless_writer(datum, file.writer_schema, r)
            p["checksum"] = (p["checksum"] + xxh64_intdigest(datum.getvalue())) % 2**64
            p["count"], p["first"], p["last"] = p["count"] + 1, p["first"] if p["count"] else r["offset"], r["offset"]
            take(r)
    p["expected"] = max(p["expected"], min(int(file.metadata["tapedeck.next"]), p["range"]["until"]))
    return 200, {"expected": p["expected"]}


def answer(method, path, epoch, body):
    match [method, *path]:
        case ["GET", "pipelines", name] if name == PIPELINE:
            return 200, {"name": PIPELINE, "hash": "", "inputs": INPUTS, "decisionsTopic": ""}
        case ["PUT", "sessions", name]:
            return open_session(name, json.loads(body))
        case [_, "sessions", name, *rest] if name in SESSIONS:
            s = SESSIONS[name]
            if method == "GET":
                return status(name, s)
            if epoch < s["epoch"] or s["state"] != "OPEN" and rest[:1] == ["segments"]:
                return 409, {"message": "session %s is %s at epoch %d" % (name, s["state"], s["epoch"])}
            if rest[:1] == ["segments"]:
                return segment(s, rest[1], int(rest[2]), int(rest[3]), body)
            end = "FINISHED" if rest == ["finish"] else "CANCELLED"
            if s["state"] not in ("OPEN", end) or end == "FINISHED" and any(p["expected"] < p["range"]["until"] for p in s["parts"].values()):
                return 409, {"message": "session %s is %s, or not everything is there" % (name, s["state"])}
            s["state"] = end
            return status(name, s)
    return 404, {"message": "no such pipeline, session or call"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do(self):
        url, body = urlsplit(self.path), self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            with LOCK:
                code, out = answer(self.command, [unquote(p) for p in url.path.strip("/").split("/")], int(parse_qs(url.query).get("epoch", [0])[0]), body)
        except Exception as e:
            code, out = 422, {"message": repr(e)}
        data = json.dumps(out if code < 300 or "expected" in out else out | {"error_code": code}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
