package storagetest_test

import (
	"testing"

	"pgregory.net/rapid"

	"runlog/storage/storagetest"
	"runlog/storage/storagetest/stories"
)

// TestModel shows that the model agrees with itself, so that the suite asks for nothing impossible.
func TestModel(t *testing.T) {
	open := func(rapid.TB) storagetest.System { return storagetest.NewModel() }
	t.Run("examples", func(t *testing.T) { stories.Tell(t, open) })
	t.Run("workloads", func(t *testing.T) { storagetest.Workloads(t, open) })
	t.Run("from outside", func(t *testing.T) {
		hidden := func(*testing.T, rapid.TB) storagetest.Remote { return storagetest.NewHidden() }
		stories.TellRemote(t, hidden)
		storagetest.RemoteWorkloads(t, hidden)
	})
}
