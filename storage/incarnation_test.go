package storage_test

import (
	"bytes"
	"errors"
	"testing"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestIncarnation: a store begins in the incarnation of its cluster id. An entry begins another
// one, which survives restarts, later entries and installs.
func TestIncarnation(t *testing.T) {
	l := open(t, storage.Options{})
	if got := l.Store.Incarnation(); got != storagetest.Cluster.First() {
		t.Fatalf("a new store is in incarnation %v", got)
	}
	entry, err := l.Store.NewIncarnation()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Store.Apply(1, 1, entry); err != nil {
		t.Fatal(err)
	}
	begun := l.Store.Incarnation()
	if begun == storagetest.Cluster.First() || begun == (storage.Incarnation{}) {
		t.Fatalf("the entry has begun %v", begun)
	}
	if err := l.Store.ApplyMembership(2, 1, []byte("members")); err != nil {
		t.Fatal(err)
	}
	raise(t, l, 9, 7) // A proposal without an effect.
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	other := open(t, storage.Options{})
	if err := other.Store.Install(bytes.NewReader(streamOf(t, l))); err != nil {
		t.Fatal(err)
	}
	if a, b := l.Store.Incarnation(), other.Store.Incarnation(); a != begun || b != begun {
		t.Errorf("incarnation %v after a restart, %v after an install, want %v", a, b, begun)
	}
	if err := errors.Join(l.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
}
