package run

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// longRecord draws an event of a run with many steps and attempts, so that their trees are deep.
func longRecord(rng *rand.Rand, seq uint64, steps int) storage.Record {
	payloads := []string{`{}`, `{"artifacts":[{"uri":"s3://a","kind":"log","sizeBytes":7}]}`, `{"error":{"code":"E","message":"m"}}`,
		`{"reason":"because"}`, `{"outcome":"FAIL"}`, `{"draining":true}`, `{"signalId":"s"}`}
	payload := payloads[rng.IntN(len(payloads))]
	switch rng.IntN(20) {
	case 0:
		// Runs that start, and last for a while, complete with what their steps have.
		types := []string{contract.RunStarted, contract.RunStarted, contract.RunPaused, contract.RunResumed, contract.RunResumed,
			contract.RunResumed, contract.RunCompleted, contract.RunCompleted, runEventTypes[rng.IntN(len(runEventTypes))]}
		return record(seq, types[rng.IntN(len(types))], "", 1, payload)
	case 1:
		return record(seq, contract.SignalAccepted, "", 1, payload)
	}
	step, attempt := fmt.Sprint("step-", rng.IntN(steps)), 1+rng.Uint32N(4)
	if rng.IntN(3) == 0 {
		step, attempt = "retried", 1+rng.Uint32N(200)
	}
	return record(seq, stepEventTypes[rng.IntN(len(stepEventTypes))], step, attempt, payload)
}

// version is a snapshot that was handed out, and what it was then.
type version struct {
	snapshot, was *Snapshot
	digest        [32]byte
}

func versionOf(s *Snapshot) version { return version{s, deepCopy(s), s.Digest()} }

func (v *version) check(t *testing.T, what string) {
	t.Helper()
	if !reflect.DeepEqual(asLists(v.snapshot), asLists(v.was)) || v.snapshot.Digest() != v.digest {
		t.Fatalf("%s: the snapshot at %d has changed\nto  %s\nwas %s", what, v.was.LastEventSeq, v.snapshot.CanonicalJSON(), v.was.CanonicalJSON())
	}
}

// TestNoVersionOfALongRunChangesPRJ1 keeps every snapshot of runs with hundreds of steps and
// attempts, lets several futures fork from each of some of them, and futures from those: whatever
// is folded onto it, each stays what it was, and each future is the one that the stored form of its
// past has.
func TestNoVersionOfALongRunChangesPRJ1(t *testing.T) {
	for seed := range storagetest.Draws(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		steps := []int{1, 30, 400}[seed%3]
		versions := []version{versionOf(Empty(&storage.Run{RunID: "run-1"}))}
		for range 120 {
			// From the newest one most of the time, so that runs become long; else from anywhere.
			from := versions[len(versions)-1].snapshot
			if rng.IntN(3) == 0 {
				from = versions[rng.IntN(len(versions))].snapshot
			}
			var rs []storage.Record
			for i := range 1 + rng.IntN(25) {
				rs = append(rs, longRecord(rng, from.LastEventSeq+1+uint64(i), steps))
			}
			next := ReduceAll(from, rs)
			versions = append(versions, versionOf(next))
			back, err := UnmarshalStored(from.MarshalStored())
			if err != nil {
				t.Fatal(err)
			}
			again := versionOf(foldOneByOne(back, rs))
			if again.digest != next.Digest() || !reflect.DeepEqual(asLists(again.snapshot), asLists(next)) {
				t.Fatalf("seed %d: from the stored form, one by one\n%s\nat once\n%s", seed, again.snapshot.CanonicalJSON(), next.CanonicalJSON())
			}
		}
		for i := range versions {
			versions[i].check(t, fmt.Sprintf("seed %d, version %d", seed, i))
		}
	}
}

// TestEveryStoredPrefixFoldsOnPRJ1 puts a run away after each of its events and folds the rest onto
// what is read back.
func TestEveryStoredPrefixFoldsOnPRJ1(t *testing.T) {
	for seed := range storagetest.Draws(4) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var rs []storage.Record
		for seq := range uint64(150) {
			rs = append(rs, longRecord(rng, seq+1, 40))
		}
		want := ReduceAll(nil, rs)
		var prefix *Snapshot
		for i := range rs {
			prefix = Reduce(prefix, &rs[i])
			back, err := UnmarshalStored(prefix.MarshalStored())
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(asLists(back), asLists(prefix)) {
				t.Fatalf("seed %d: after %d events %s is read back as %s", seed, i+1, prefix.CanonicalJSON(), back.CanonicalJSON())
			}
			if got := ReduceAll(back, rs); got.Digest() != want.Digest() || !reflect.DeepEqual(asLists(got), asLists(want)) {
				t.Fatalf("seed %d: stored after %d events and folded on\n%s\nwant\n%s", seed, i+1, got.CanonicalJSON(), want.CanonicalJSON())
			}
		}
	}
}
