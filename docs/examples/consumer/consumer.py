#!/usr/bin/env python3
"""Prints the events of a pull subscription, each once while it runs (docs/event-bus.md).

    consumer.py http://127.0.0.1:7411 planner [MAX]

RUNLOG_TENANT has the tenant of the subscription, unless the caller has that one alone. RUNLOG_TOKEN
has the token, if the node wants one. Only the standard library is needed. It waits for more events
until Ctrl-C, or until it has printed MAX.
"""
import json
import os
import sys
import time
import urllib.error
import urllib.request


def call(url, body):
    """Posts a request until the node takes it, and returns the answer."""
    headers = {"Content-Type": "application/json"}
    if os.environ.get("RUNLOG_TOKEN"):
        headers["Authorization"] = "Bearer " + os.environ["RUNLOG_TOKEN"]
    if os.environ.get("RUNLOG_TENANT"):
        body = {"tenantId": os.environ["RUNLOG_TENANT"], **body}
    while True:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)
        except urllib.error.HTTPError as e:
            why = e.read().decode()
            if e.code not in (429, 503):
                raise SystemExit(why)
        except OSError as e:  # The node is away for a moment, or the address is wrong.
            why = e
        print(f"{url}: {why}; trying again", file=sys.stderr, flush=True)
        time.sleep(1)


def main(url, subscription, most=0):
    path = f"{url}/v1/subscriptions/{subscription}"
    last = {}  # the highest runseq of each run; keep it with your own data
    handled = 0
    while not most or handled < most:
        size = min(100, most - handled) if most else 100
        acknowledged, refused = [], []
        for delivery in call(path + ":pull", {"max": size, "wait": "20s"})["deliveries"]:
            event = delivery["event"]
            run, seq = event["subject"], int(event["runseq"])
            try:
                if seq > last.get(run, 0):  # Otherwise it is a repeat.
                    print(run, seq, event["type"].removeprefix("runlog."), flush=True)
                    last[run] = seq
                    handled += 1
                acknowledged.append(delivery["deliveryId"])
            except ValueError:  # What your own code raises.
                refused.append(delivery["deliveryId"])
        if acknowledged:
            call(path + ":ack", {"deliveryIds": acknowledged})
        if refused:
            call(path + ":nack", {"deliveryIds": refused})


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    except KeyboardInterrupt:
        sys.exit(130)
