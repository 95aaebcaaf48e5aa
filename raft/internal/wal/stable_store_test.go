package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"
)

func openStableForTest(t rapid.TB, fs vfs.FS) *Stable {
	t.Helper()
	s, err := OpenStable(fs, "", func(err error) { t.Errorf("failed: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOneVoteATerm casts votes as hashicorp/raft does, with power losses between and within writes:
// the stored candidate always is one that got a vote, and completed writes are there.
func TestOneVoteATerm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewCrashableMem()
		s := openStableForTest(t, fs)
		given := map[uint64]string{} // votes that were written in full
		var term uint64
		for step := range rapid.IntRange(1, 12).Draw(t, "elections") {
			term += uint64(rapid.IntRange(0, 2).Draw(t, "terms"))
			candidate := fmt.Sprintf("node-%d", rapid.IntRange(1, 3).Draw(t, "candidate"))
			var done int
			for _, write := range []func() error{
				func() error { return s.SetUint64([]byte(keyCurrentTerm), term) },
				func() error { return s.SetUint64([]byte(keyLastVoteTerm), term) },
				func() error { return s.Set([]byte(keyLastVoteCand), []byte(candidate)) },
			} {
				if given[term] != "" || rapid.IntRange(0, 5).Draw(t, "crash") == 0 {
					break
				}
				if err := write(); err != nil {
					t.Fatal(err)
				}
				done++
			}
			if done == 3 {
				given[term] = candidate
			}
			if rapid.Bool().Draw(t, "restart") {
				fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))})
				s = openStableForTest(t, fs)
			}
			voted, err := s.GetUint64([]byte(keyLastVoteTerm))
			who, err2 := s.Get([]byte(keyLastVoteCand))
			if err = errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if given[voted] != string(who) {
				t.Fatalf("step %d: in term %d the vote is said to be of %q, it was given to %q", step, voted, who, given[voted])
			}
			if given[term] != "" && voted != term {
				t.Fatalf("step %d: the vote of term %d is forgotten", step, term)
			}
		}
	})
}

// TestDamagedSmallFile: every flipped bit is noticed, and so is every missing end.
func TestDamagedSmallFile(t *testing.T) {
	v := vote{term: 7, votedTerm: 6, candidate: []byte("node-2")}
	disk := vfs.NewMem()
	if err := ReplaceSummed(disk, "", VoteFile, v.bytes()); err != nil {
		t.Fatal(err)
	}
	whole, err := disk.UnsafeGetFileDataBuffer(VoteFile)
	if err != nil {
		t.Fatal(err)
	}
	read := func(data []byte) error {
		other := vfs.NewMem()
		f, err := other.Create(VoteFile, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(data)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		_, err = ReadSummed(other, VoteFile)
		return err
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for i := range len(whole) * 8 {
		bad := append([]byte(nil), whole...)
		bad[i/8] ^= 1 << (i % 8)
		if err := read(bad); err == nil {
			t.Errorf("bit %d flipped, and taken", i)
		}
	}
	for n := range whole {
		if err := read(whole[:n]); err == nil {
			t.Errorf("cut to %d bytes, and taken", n)
		}
	}
}

// TestVoteOfAnotherFormat: a vote of another format is refused.
func TestVoteOfAnotherFormat(t *testing.T) {
	v := vote{term: 7, votedTerm: 6, candidate: []byte("node-2")}
	body := v.bytes()
	if got, err := parseVote(body); err != nil || got.term != 7 || got.votedTerm != 6 || string(got.candidate) != "node-2" {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := parseVote(body[:voteHeader-1]); err == nil {
		t.Error("a short vote is taken")
	}
	body[0]++
	if _, err := parseVote(body); err == nil {
		t.Error("a vote of another format is taken")
	}
}

// TestVoteNotWritten: a node that cannot write its vote stops itself (D10).
func TestVoteNotWritten(t *testing.T) {
	var failed []error
	broken := errorfs.Toggle{Injector: errorfs.ErrInjected.If(errorfs.Writes)}
	s, err := OpenStable(errorfs.Wrap(vfs.NewMem(), &broken), "", func(err error) { failed = append(failed, err) })
	if err != nil {
		t.Fatal(err)
	}
	broken.On()
	if err := s.SetUint64([]byte(keyCurrentTerm), 3); err == nil || len(failed) != 1 {
		t.Errorf("error %v, told %v", err, failed)
	}
	if term, _ := s.GetUint64([]byte(keyCurrentTerm)); term != 0 {
		t.Errorf("term %d is shown and was not written", term)
	}
}
