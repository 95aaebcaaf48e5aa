#!/usr/bin/env python3
"""Verifies a proof of a run (docs/audit.md) without any code of runlog, and without a library.

    python3 verify_run.py FILE PUBLIC_KEY [KEPT]

PUBLIC_KEY is a key, or a file with one, as it is or as "runlog audit keys -o json" prints it. KEPT is a
file with a checkpoint that you have kept: the proof must show that the log continues it.

Exit code 0 and one line: it holds. 1 and one line: it does not, and why. Python 3.8 or newer.
"""
import base64, calendar, hashlib, json, os, re, sys, time, uuid

# Ed25519, as in RFC 8032 section 5.1: short enough to be read.
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, I = -121665 * pow(121666, P - 2, P) % P, pow(2, (P - 1) // 4, P)


def point(b):
    """Decodes a point, as X, Y, Z and T with x = X/Z, y = Y/Z and xy = T/Z (RFC 8032 section 5.1.4)."""
    y, sign = int.from_bytes(b, "little") & (1 << 255) - 1, b[31] >> 7
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P)
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * I % P
    if y >= P or (x * x - xx) % P or (x == 0 and sign):
        raise ValueError("not a point of the curve")
    x = x if x & 1 == sign else P - x
    return x, y, 1, x * y % P


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]), (p[1] + p[0]) * (q[1] + q[0])
    c, d = 2 * p[3] * q[3] * D, 2 * p[2] * q[2]
    e, f, g, h = (b - a) % P, (d - c) % P, (d + c) % P, (b + a) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(n, a):
    r = (0, 1, 1, 0)
    while n:
        r, a, n = add(r, a) if n & 1 else r, add(a, a), n >> 1
    return r


BASE = point(bytes([0x58] + [0x66] * 31))


def ed25519(key, text, signature):
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    k = int.from_bytes(hashlib.sha512(r + key + text).digest(), "little")
    p, q = times(s, BASE), add(point(r), times(k % L, point(key)))
    return s < L and (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


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


def open_note(note, public_key, signer=None):
    """Verifies a note by a key name+id+key, under its own name or another, and returns its text."""
    name, key_id, key = public_key.split("+", 2)
    raw = base64.b64decode(key, validate=True)
    need(len(raw) == 33 and raw[0] == 1 and sha(name.encode(), b"\n", raw)[:4].hex() == key_id, f"{public_key} is no key")
    if signer:
        name, key_id = signer, sha(signer.encode(), b"\n", raw)[:4].hex()
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


def open_checkpoint(note, keys):
    """Verifies a checkpoint by the keys of its cluster, and returns what it says, and the key."""
    origin, size, root, position, through, runs, heads = note.partition("\n\n")[0].split("\n")
    need(re.fullmatch("runlog/[0-9a-f]{32}/[0-9a-f]{16}", origin), f"{origin!r} is no origin of a checkpoint")
    for key in keys:
        try:
            need(key.split("+")[0] == origin.rpartition("/")[0], "a key of another cluster")
            open_note(note, key, origin)
        except ValueError as e:
            why = e
            continue
        need(int(size) <= 1 << 60 and int(runs.removeprefix("runs ")) <= 1 << 60, "no tree has so many leaves")
        return {
            "origin": origin, "size": int(size), "root": base64.b64decode(root, validate=True),
            "position": int(position.removeprefix("position ")), "through": through.removeprefix("complete-through "),
            "runs": int(runs.removeprefix("runs ")), "heads": bytes.fromhex(heads.removeprefix("heads ")),
        }, key
    raise ValueError(f"checkpoint of {origin}: {why}")


def node(left, right):
    return sha(b"\1", left, right)


def middle(lo, hi):
    """The left subtree has the largest power of two of leaves that is smaller than their number."""
    return lo + (1 << (hi - lo - 1).bit_length() - 1)


def root_of(lo, hi, leaves, hashes):
    """The root over the leaves lo to hi - 1 from the proved leaves, pairs of index and hash, and the
    hashes of the largest subtrees without one, from the left to the right. It takes what it uses."""
    if not leaves or leaves[0][0] >= hi:
        need(hashes, "hashes are missing in a proof of inclusion")
        return hashes.pop(0)
    if hi - lo == 1:
        return leaves.pop(0)[1]
    m = middle(lo, hi)
    left = root_of(lo, m, leaves, hashes)
    return node(left, root_of(m, hi, leaves, hashes))


def old_and_new(lo, hi, old, hashes, root):
    """The roots of the first old leaves and of all, of the subtree of lo to hi - 1 (RFC 6962 section
    2.1.2). root is that of the old tree: its leaves are known to whoever has kept it."""
    if old == hi:
        both = root if lo == 0 else hashes.pop(0)
        return both, both
    m = middle(lo, hi)
    if old <= m:
        before, left = old_and_new(lo, m, old, hashes, root)
        return before, node(left, hashes.pop(0))
    before, right = old_and_new(m, hi, old, hashes, root)
    left = hashes.pop(0)
    return node(left, before), node(left, right)


def continues(kept, c, hashes):
    """Checks that the log of a checkpoint begins with all records of a kept one."""
    why = f"the log does not continue the kept checkpoint: {kept['size']} records then, {c['size']} now"
    need(kept["size"] <= c["size"] and kept["position"] <= c["position"], why)
    if kept["size"] in (0, c["size"]):
        need(not hashes and (kept["size"] == 0 or kept["root"] == c["root"]), why)
        return
    try:
        roots = old_and_new(0, c["size"], kept["size"], hashes, kept["root"])
    except IndexError:
        raise ValueError(why) from None
    need(not hashes and roots == (kept["root"], c["root"]), why)


def lineage(keys, trusted):
    """Checks that each key endorses the next, and that the trusted one is among them."""
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
    return [k["publicKey"] for k in keys]


def verify(file, trusted, since):
    first = json.loads(next(file))
    need(first["proof"] == "runlog run proof 2", "this is no proof of a run")
    keys = lineage(first["keys"], trusted)
    c, _ = open_checkpoint(first["checkpoint"], keys[-1:])
    shown = ""
    if "since" in first:
        kept, _ = open_checkpoint(first["since"], keys)
        continues(kept, c, [base64.b64decode(h, validate=True) for h in first.get("consistency", [])])
        shown = f"; the log continues the checkpoint of {kept['through']}: its first {kept['size']} records are unchanged"
    if since is not None:
        need("since" in first and first["since"].partition("\n\n")[0] == since.partition("\n\n")[0],
             "the proof does not show that the log continues your checkpoint: make it with --since")

    chain, seq, persisted, last, block = bytes(32), 0, None, (-1, (-1, -1), -1), []
    for line in file:
        line = line.rstrip(b"\n")
        if line.startswith(b'{"inclusion":'):
            hashes = [base64.b64decode(h, validate=True) for h in json.loads(line)["inclusion"]]
            need(block and block[-1][0] < c["size"], "a proof of the inclusion of no record")
            need(root_of(0, c["size"], block, hashes) == c["root"] and not hashes, f"a record up to runSeq {seq} is not in the log")
            continue
        if line.startswith(b'{"head":'):
            end = json.loads(line)
            break
        r = json.loads(line.decode("utf-8", "surrogateescape"))
        need(r["runId"] == first["runId"] and int(r["runSeq"]) > seq, f"runSeq {r['runSeq']}: another run, or out of order")
        seq, persisted = int(r["runSeq"]), r["persistedAt"]
        chain = sha(b"runlog/chain/1\0", chain, record_digest(r, payload_of(line, r)), u64(seq), u64(nanoseconds(persisted)))
        need(chain.hex() == r["chainDigest"], f"runSeq {seq}: changed, or one is missing before it")
        index, place, stamp = int(r["index"]), (int(r["position"]), int(r["offset"])), nanoseconds(persisted)
        need(index > last[0] and place > last[1] and stamp >= last[2], f"runSeq {seq}: its place does not follow")
        need(place[0] <= c["position"] and stamp <= nanoseconds(c["through"]), f"runSeq {seq} lies behind the checkpoint")
        last = index, place, stamp
        leaf = b"runlog/leaf/1\0" + chain + u64(place[0]) + place[1].to_bytes(4, "big") + u64(stamp)
        block.append((index, sha(b"\0", leaf)))
        need(len(block) <= 1000, "more than 1,000 records without a proof of inclusion")
    else:
        raise ValueError("the file is cut off")
    need(not next(file, b"") and not block, "there is more behind the end, or records without a proof of inclusion")

    head = end["head"]
    need(head["runId"] == first["runId"], "the head is another run's")
    need((int(head["lastSeq"]), head.get("persistedAt"), head["chainDigest"]) == (seq, persisted, chain.hex()), "the records are not all")
    texts = [head[n].encode() for n in ("runId", "tenantId", "projectId", "environmentId", "planId", "planVersion")]
    data = b"runlog/run-head/1\0" + b"".join(len(t).to_bytes(2, "big") + t for t in texts)
    data += u64(nanoseconds(head["createdAt"])) + u64(seq) + u64(nanoseconds(persisted) if persisted else 0) + chain

    i, n, hash = int(end["index"]), c["runs"] - 1, sha(b"\0", data)
    need(0 <= i <= n, "no such head")
    for p in (base64.b64decode(h, validate=True) for h in end["path"]):
        need(n > 0, "the path is too long")
        if i & 1 or i == n:
            hash = node(p, hash)
            while not i & 1 and i:
                i, n = i >> 1, n >> 1
        else:
            hash = node(hash, p)
        i, n = i >> 1, n >> 1
    need(n == 0 and hash == c["heads"], "the path does not lead to the root of the heads")
    return f"run {first['runId']}: all records up to runSeq {seq}, complete through {c['through']}, in a log of {c['size']} records{shown}"


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
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: verify_run.py PROOF KEY [KEPT]; KEY is a public key, or a file with it; KEPT is a kept checkpoint")
    try:
        since = None
        if len(sys.argv) == 4:
            with open(sys.argv[3], encoding="utf-8") as f:
                since = f.read()
        with open(sys.argv[1], "rb") as f:
            print(verify(f, public_key(sys.argv[2]), since))
    except (OSError, ValueError, KeyError, IndexError, StopIteration) as e:
        sys.exit(f"{sys.argv[1]}: {e}")
