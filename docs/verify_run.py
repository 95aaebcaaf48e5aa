#!/usr/bin/env python3
"""Verifies a proof of a run (docs/audit.md) without any code of runlog, and without a library.

    python3 verify_run.py FILE PUBLIC_KEY

PUBLIC_KEY is a key, or a file with one, as it is or as "runlog audit keys -o json" prints it.

Exit code 0 and one line: it holds. 1 and one line: it does not, and why. Python 3.8 or newer.
"""
import base64, calendar, hashlib, json, os, re, sys, time, uuid

# Ed25519, as in RFC 8032 section 5.1: slow, and short enough to be read.
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, I = -121665 * pow(121666, P - 2, P) % P, pow(2, (P - 1) // 4, P)


def point(b):
    y, sign = int.from_bytes(b, "little") & (1 << 255) - 1, b[31] >> 7
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P)
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * I % P
    if y >= P or (x * x - xx) % P or (x == 0 and sign):
        raise ValueError("not a point of the curve")
    return (x, y) if x & 1 == sign else (P - x, y)


def add(a, b):
    m = D * a[0] * b[0] * a[1] * b[1]
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + m, P - 2, P)
    return x % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - m, P - 2, P) % P


def times(n, a):
    r = (0, 1)
    while n:
        r, a, n = add(r, a) if n & 1 else r, add(a, a), n >> 1
    return r


BASE = point(bytes([0x58] + [0x66] * 31))


def ed25519(key, text, signature):
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    k = int.from_bytes(hashlib.sha512(r + key + text).digest(), "little")
    return s < L and times(s, BASE) == add(point(r), times(k % L, point(key)))


def need(condition, why):
    if not condition:
        raise ValueError(why)


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def u64(n):
    return (int(n) & (1 << 64) - 1).to_bytes(8, "big")


def nanoseconds(text):
    m = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", text)
    need(m, f"{text!r} is no time")
    return calendar.timegm(time.strptime(m[1], "%Y-%m-%dT%H:%M:%S")) * 10**9 + int((m[2] or "0").ljust(9, "0"))


def open_note(note, public_key):
    """Verifies a note by a key name+id+key, and returns its text."""
    name, key_id, key = public_key.split("+", 2)
    raw = base64.b64decode(key, validate=True)
    need(len(raw) == 33 and raw[0] == 1 and sha(name.encode(), b"\n", raw)[:4].hex() == key_id, f"{public_key} is no key")
    text, _, signatures = note.rpartition("\n\n")
    text += "\n"
    for line in signatures.splitlines():
        dash, who, signature = line.split(" ")
        signature = base64.b64decode(signature, validate=True)
        if dash == "—" and who == name and signature[:4].hex() == key_id:
            need(ed25519(raw[1:], text.encode(), signature[4:]), f"the signature does not fit: {name}+{key_id}")
            return text
    raise ValueError(f"not signed by {name}+{key_id}")


FIELDS = {2: "eventType", 3: "runId", 4: "tenantId", 5: "projectId", 6: "environmentId", 7: "planId", 8: "planVersion",
          9: "stepId", 12: "idempotencyKey", 14: "emittedBy", 15: "causedBySignalId", 16: "parentEventId", 17: "contractVersion"}


def field(number, value):
    return bytes([number]) + len(value).to_bytes(4, "big") + value


def record_digest(r, payload):
    envelope = {n: r[name].encode() for n, name in FIELDS.items() if name in r}
    envelope[1] = uuid.UUID(r["eventId"]).bytes
    envelope[10], envelope[11] = u64(r["logicalAttemptId"]), u64(r["engineAttemptId"])
    envelope[13] = u64(nanoseconds(r["emittedAt"]))
    if "extensionsJson" in r:
        envelope[19] = base64.b64decode(r["extensionsJson"], validate=True)
    # contractVersion ends the envelope.
    fields = b"".join(field(n, envelope[n]) for n in sorted(envelope, key=lambda n: (n == 17, n)))
    by, token = r.get("appendedBy", "").encode(), r.get("appendedByTokenId", "").encode()
    author = (field(18, by) if by else b"") + (field(22, token) if token else b"")
    said = b""
    if "original" in r:
        source = r["original"].get("source", "").encode()
        said = field(20, u64(nanoseconds(r["original"]["persistedAt"]))) + (field(21, source) if source else b"")
    need(re.fullmatch("[0-9a-f]{32}", r["payloadSalt"]), f"{r['payloadSalt']!r} is no salt")
    salted = sha(b"runlog/payload/1\0", bytes.fromhex(r["payloadSalt"]), payload)
    return sha(b"runlog/envelope/1\0", fields, salted, author, said)


def payload_of(line, r):
    if "payloadJson" in r:
        return base64.b64decode(r["payloadJson"], validate=True)
    # The last member: its bytes as they stand, which a JSON parser does not give.
    at = line.index(b',"payload":', line.index(b'"chainDigest":"')) + len(b',"payload":')
    need(line.endswith(b"}"), "the payload is not the last member")
    return line[at:-1]


def verify(file, trusted):
    first, run, chain, seq, persisted = json.loads(next(file)), None, bytes(32), 0, None
    need(first["proof"] == "runlog run proof 1", "this is no proof of a run")
    for line in file:
        line = line.rstrip(b"\n")
        if line.startswith(b'{"leaf":'):
            end = json.loads(line)
            break
        r = json.loads(line.decode("utf-8", "surrogateescape"))
        need(r["runId"] == first["runId"] and int(r["runSeq"]) > seq, f"runSeq {r['runSeq']}: another run, or out of order")
        seq, persisted = int(r["runSeq"]), r["persistedAt"]
        chain = sha(b"runlog/chain/1\0", chain, record_digest(r, payload_of(line, r)), u64(seq), u64(nanoseconds(persisted)))
        need(chain.hex() == r["chainDigest"], f"runSeq {seq}: changed, or one is missing before it")
    else:
        raise ValueError("the file is cut off")
    need(not next(file, b""), "there is more behind the end")

    leaf = end["leaf"]
    need(leaf["runId"] == first["runId"], "the leaf is another run's")
    need((int(leaf["lastSeq"]), leaf.get("persistedAt"), leaf["chainDigest"]) == (seq, persisted, chain.hex()), "the records are not all")
    texts = [leaf[n].encode() for n in ("runId", "tenantId", "projectId", "environmentId", "planId", "planVersion")]
    head = b"runlog/run-head/1\0" + b"".join(len(t).to_bytes(2, "big") + t for t in texts)
    head += u64(nanoseconds(leaf["createdAt"])) + u64(seq) + u64(nanoseconds(persisted) if persisted else 0) + chain

    keys = end["keys"]
    need(trusted in [k["publicKey"] for k in keys], "none of its keys is the one that you trust")
    number = 0  # of the key before, where it is known
    for before, k in zip(keys, keys[1:]):
        cluster = k["publicKey"].split("+")[0][len("runlog/"):]
        said = open_note(k["endorsement"], before["publicKey"]).split("\n")
        need(len(said) == 5 and said[:2] == ["runlog signing key 1", f"cluster {cluster}"] and said[3] == f"key {k['publicKey']}",
             f"{k['publicKey']} is not endorsed")
        next_number = int(said[2].removeprefix("number "))
        need(next_number > 1 and number in (0, next_number - 1), f"{k['publicKey']} is endorsed as number {next_number}, out of order")
        number = next_number
    checkpoint = open_note(end["checkpoint"], keys[-1]["publicKey"]).split("\n")
    need(len(checkpoint) == 8 and checkpoint[0] == keys[-1]["publicKey"].split("+")[0], "another cluster's checkpoint")
    runs, root = int(checkpoint[1]), base64.b64decode(checkpoint[2], validate=True)

    i, n, node = int(end["index"]), runs - 1, sha(b"\0", head)
    need(0 <= i <= n, "no such leaf")
    for p in map(bytes.fromhex, end["path"]):
        need(n > 0, "the path is too long")
        if i & 1 or i == n:
            node = sha(b"\1", p, node)
            while not i & 1 and i:
                i, n = i >> 1, n >> 1
        else:
            node = sha(b"\1", node, p)
        i, n = i >> 1, n >> 1
    need(n == 0 and node == root, "the path does not lead to the root")
    return f"run {first['runId']}: all records up to runSeq {seq}, {checkpoint[4]}, one of {runs} runs"


def public_key(text):
    if os.path.isfile(text):
        with open(text, encoding="utf-8") as f:
            text = f.read().strip()
        if text.startswith("{"):
            text = json.loads(text)["publicKey"]
    if text.count("+") < 2:
        raise ValueError(f"{text!r} is neither a public key (name+id+key) nor a file with one")
    return text


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: verify_run.py PROOF KEY; KEY is a public key, or a file with it")
    try:
        with open(sys.argv[1], "rb") as f:
            print(verify(f, public_key(sys.argv[2])))
    except (OSError, ValueError, KeyError, StopIteration) as e:
        sys.exit(f"{sys.argv[1]}: {e}")
