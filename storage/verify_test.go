package storage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// verify reads a run as an auditor has it read.
func verify(l *storagetest.Local, runID string) (*storage.Verification, error) {
	v, err := l.Store.View(runID)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Verify(context.Background())
}

// tamperBed has a run in several blocks and chunks, and another run that shares them.
func tamperBed(t *testing.T) (*storagetest.Local, int) {
	t.Helper()
	l := open(t, storage.Options{})
	count := 0
	for i := range 4 {
		events := storagetest.Events("run", i*5, 3)
		if i == 2 { // a duplicate among them
			events = append(events, storagetest.Events("run", 0, 1)...)
		}
		requests := []storagetest.Request{
			{Append: &storage.Append{RunID: "other", Events: storagetest.Events("other", i, 1)}},
			{Append: &storage.Append{RunID: "run", Events: events}},
			{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", i*5+3, 1)}},
		}
		if _, err := l.Propose(1_000+int64(i), requests); err != nil {
			t.Fatal(err)
		}
		count += 4
	}
	return l, count
}

func TestVerifyAPP11(t *testing.T) {
	l, count := tamperBed(t)
	defer l.Close()
	got, err := verify(l, "run")
	if err != nil || got.FirstBadSeq != 0 || got.Verified != uint64(count) || got.Problem != "" {
		t.Fatalf("%+v, %v; want %d events", got, err, count)
	}
}

// TestVerifyFindsTamperingAPP11 changes the database as an attacker would that knows all formats
// but cannot break SHA-256: every byte of the run's rows, and rows that are removed or swapped.
// Verify finds each change.
func TestVerifyFindsTamperingAPP11(t *testing.T) {
	l, _ := tamperBed(t)
	defer l.Close()
	rows, err := l.Store.Dump()
	if err != nil {
		t.Fatal(err)
	}
	const runNo = 2 // "other" came first
	found := func(what string) {
		t.Helper()
		switch got, err := verify(l, "run"); {
		case err != nil:
		case got.FirstBadSeq == 0:
			t.Errorf("%s: taken for sound", what)
		case got.Problem == "":
			t.Errorf("%s: no word about it", what)
		}
	}
	set := func(key, value []byte) {
		t.Helper()
		if err := l.Store.Tamper(key, value); err != nil {
			t.Fatal(err)
		}
	}
	var chunks, places [][2][]byte
	for i := 0; i < len(rows); i += 2 {
		key, value := rows[i], rows[i+1]
		mine := len(key) > 10 && binary.BigEndian.Uint64(key[3:]) == runNo
		skipped := func(int) bool { return false }
		switch {
		case key[0] == 'c':
			chunks = append(chunks, [2][]byte{key, value})
			value = nil // below, where what is no event of the run is distinguished
		case key[0] == 'i' && mine:
			places = append(places, [2][]byte{key, value})
		case key[0] == 'h' && mine:
			// Position, fence and numbers of receipts, which say nothing about the records.
			skipped = func(at int) bool { return at >= 48 && at < 64 || at >= 65 }
		default:
			continue
		}
		for at := range value {
			if skipped(at) {
				continue
			}
			changed := bytes.Clone(value)
			changed[at] ^= 1
			set(key, changed)
			found(fmt.Sprintf("byte %d of %x", at, key))
		}
		if value != nil {
			set(key, nil)
			found(fmt.Sprintf("%x deleted", key))
			set(key, value)
		}
	}
	for i := range chunks[1:] {
		a, b := chunks[i], chunks[i+1]
		set(a[0], b[1])
		set(b[0], a[1])
		found(fmt.Sprintf("chunks %d and %d swapped", i, i+1))
		set(a[0], a[1])
		set(b[0], b[1])
	}
	for i := range places[1:] {
		a, b := places[i], places[i+1]
		set(a[0], b[1])
		set(b[0], a[1])
		found(fmt.Sprintf("places %d and %d swapped", i, i+1))
		set(a[0], a[1])
		set(b[0], b[1])
	}
	for _, c := range chunks {
		for at := range c[1] {
			if covered, err := l.Store.IsEvent("run", c[1], at); err != nil {
				t.Fatal(err)
			} else if !covered {
				continue
			}
			changed := bytes.Clone(c[1])
			changed[at] ^= 1
			set(c[0], changed)
			found(fmt.Sprintf("byte %d of chunk %x", at, c[0]))
		}
		set(c[0], c[1])
	}
	if got, err := verify(l, "run"); err != nil || got.FirstBadSeq != 0 {
		t.Fatalf("restored, and %+v, %v", got, err)
	}
}
