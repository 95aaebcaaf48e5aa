package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestBucketVectorsD15 holds the hash to values that another program has worked out from
// docs/formats.md: it can never change.
func TestBucketVectorsD15(t *testing.T) {
	for _, v := range []struct {
		tenant, project, environment string
		want                         storage.Bucket
	}{
		{"tenant", "project", "prod", 4259},
		{"acme", "data", "prod", 27652},
		{"ac", "medata", "prod", 15166},
		{"", "", "", 43476},
		{strings.Repeat("t", 256), strings.Repeat("p", 256), strings.Repeat("e", 256), 31231},
		{"zoë", "Ünited", "日本", 39650},
	} {
		s := storage.Scope{TenantID: v.tenant, ProjectID: v.project, EnvironmentID: v.environment}
		if got := s.Bucket(); got != v.want {
			t.Errorf("%+v is in bucket %d, want %d", s, got, v.want)
		}
	}
}

// TestBucketD15: no scope is in the bucket of what belongs to none, and scopes spread evenly.
func TestBucketD15(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := storage.Scope{TenantID: rapid.String().Draw(t, "tenant"), ProjectID: rapid.String().Draw(t, "project"), EnvironmentID: rapid.String().Draw(t, "environment")}
		if b, again := s.Bucket(), s.Bucket(); b == storage.GlobalBucket || b != again {
			t.Fatalf("%+v is in bucket %d", s, s.Bucket())
		}
	})
	quarters := map[storage.Bucket]int{}
	for i := range 4000 {
		quarters[storage.Scope{TenantID: fmt.Sprint(i), ProjectID: "p", EnvironmentID: "e"}.Bucket()>>14]++
	}
	for quarter, n := range quarters {
		if n < 850 || n > 1150 {
			t.Errorf("%d of 4,000 scopes are in quarter %d", n, quarter)
		}
	}
}

// TestBucketsApartD15: runs whose scopes lie in other buckets are as much their own as those of one
// bucket, also after a restart: duplicates, windows, the log and verification find them.
func TestBucketsApartD15(t *testing.T) {
	l := open(t, cramped)
	p := storagetest.NewPair(l)
	var requests []storagetest.Request
	for i := range 40 {
		run := fmt.Sprintf("run-%d", i)
		events := ofTenant(fmt.Sprint("tenant-", i%13), storagetest.Events(run, 0, 1+i%4))
		requests = append(requests, storagetest.Request{Append: &storage.Append{RunID: run, Events: events}})
	}
	for range 2 {
		for _, r := range requests {
			if _, err := p.Propose(1, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(p.Check(), p.Reopen(), p.Check()); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range requests {
		if got, err := verify(l, r.Append.RunID); err != nil || got.FirstBadSeq != 0 || got.Verified != uint64(len(r.Append.Events)) {
			t.Errorf("%s: %+v, %v", r.Append.RunID, got, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestHeadsWithoutBucketsD15: a run whose number has no bucket, or that of another run, is an error
// and never another run's head.
func TestHeadsWithoutBucketsD15(t *testing.T) {
	for _, change := range []func(value []byte) []byte{
		func([]byte) []byte { return nil },
		func(v []byte) []byte { return v[:1] },
		func(v []byte) []byte { return []byte{v[0], v[1] ^ 1} },
	} {
		l := open(t, storage.Options{})
		if _, err := l.Propose(1, []storagetest.Request{appendTo("a", 0, 1), appendTo("b", 0, 1)}); err != nil {
			t.Fatal(err)
		}
		rows, err := l.Store.Dump()
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(rows); i += 2 {
			if rows[i][0] == 'b' && rows[i][8] == 2 {
				if err := l.Store.Tamper(rows[i], change(rows[i+1])); err != nil {
					t.Fatal(err)
				}
			}
		}
		v, err := l.Store.Heads()
		if err != nil {
			t.Fatal(err)
		}
		failed := false
		for _, err := range v.Groups(v.Changed) {
			failed = failed || err != nil && strings.Contains(err.Error(), "row")
		}
		if !failed {
			t.Error("the heads are read")
		}
		if err := errors.Join(v.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}
}
