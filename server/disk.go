package server

import (
	"fmt"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
	"runlog/server/replica/batch"
	"runlog/storage"
)

const (
	// alertDiskLow is raised while appends are refused because the disk is nearly full.
	alertDiskLow = "DISK_LOW"
	// diskInterval is how often the disk is looked at: even a fast one does not take MinFreeBytes
	// in it.
	diskInterval = time.Second
	// diskDelay is when a refused caller should try again.
	diskDelay = 10 * time.Second
	// measureEvery is how many looks at the disk there are for one at the size of the data.
	measureEvery = 10
)

// diskFree asks a file system how many bytes this process may still write below a directory.
func diskFree(disk vfs.FS) func(dir string) (uint64, error) {
	return func(dir string) (uint64, error) {
		usage, err := disk.GetDiskUsage(dir)
		return usage.AvailBytes, err
	}
}

// watchDisk refuses appends before the disk is full: a log that cannot be written stops the node
// (D10), and one that is full cannot be made smaller, because that too needs room. Reads go on.
func (s *Server) watchDisk() {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for i := 0; ; i++ {
		s.checkDisk()
		if i%measureEvery == 0 {
			s.measureData()
		}
		select {
		case <-s.stopping.Done():
			return
		case <-ticker.C:
		}
	}
}

// checkDisk sets whether appends are refused, and logs when that begins and when it ends.
func (s *Server) checkDisk() {
	free, err := s.opts.DiskFree(s.opts.DataDir)
	if err != nil {
		s.log.Warn("cannot tell how full the disk is", "dir", s.opts.DataDir, "err", err)
		return
	}
	s.metrics.diskFree.Set(float64(free))
	low := s.opts.MinFreeBytes > 0 && free < uint64(s.opts.MinFreeBytes)
	s.alerts.set(alertDiskLow, low)
	if !low {
		if s.diskLow.Swap(nil) != nil {
			s.log.Info("the disk has room again, appends are taken", "alert", alertDiskLow)
		}
		return
	}
	if s.diskLow.Swap(s.lowDisk(free)) == nil {
		s.metrics.diskAlerts.Inc()
		s.log.Error("the disk is nearly full: appends are refused until there is room", "alert", alertDiskLow,
			"dir", s.opts.DataDir, "freeMiB", free>>20, "minFreeDiskMiB", s.opts.MinFreeBytes>>20)
	}
}

// lowDisk is what an append is told.
func (s *Server) lowDisk(free uint64) *contract.Error {
	return &contract.Error{
		Reason: contract.ReasonOverloaded, RetryAfter: diskDelay,
		Message: fmt.Sprintf("the node's disk has %d MiB left, and appends are taken from %d MiB (--min-free-disk) on: make room there. The request was not stored",
			free>>20, s.opts.MinFreeBytes>>20),
		Metadata: map[string]string{"alert": alertDiskLow, "free_bytes": strconv.FormatUint(free, 10)},
	}
}

// enqueue admits a command to the log.
func (s *Server) enqueue(cmd storage.Command) (batch.Ticket, error) {
	if low := s.diskLow.Load(); low != nil {
		s.metrics.diskRefused.Inc()
		return batch.Ticket{}, low
	}
	return s.batcher.Enqueue(cmd)
}
