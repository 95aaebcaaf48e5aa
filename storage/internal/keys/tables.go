package keys

// level is the table of the feature level.
const level = 'l'

// Level is the key of the feature level.
var Level = []byte{level}

// Core names the core's tables by their prefix. No other owner of a table may use them.
var Core = map[string]string{
	string(rune(applied)):  "applied state",
	string(rune(chunk)):    "chunks",
	string(rune(group)):    "members of the group",
	string(rune(head)):     "run heads",
	string(rune(place)):    "places of blocks",
	string(rune(receipt)):  "receipts",
	string(rune(packed)):   "packed receipts",
	string(rune(packing)):  "runs to be packed",
	string(rune(level)):    "feature level",
	string(rune(metadata)): "run metadata",
	string(rune(identity)): "run identities",
	string(rune(runID)):    "runs by name",
	string(rune(bucket)):   "buckets of runs",
	string(rune(stamp)):    "stamps",
	string(rune(tenant)):   "blocks of tenants",
}
