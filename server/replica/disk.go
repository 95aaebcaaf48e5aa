package replica

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/proto/contract"
)

const (
	// alertDiskLow has the name of the reason of those refusals. It is raised while appends are
	// refused because the disk is nearly full.
	alertDiskLow = "DISK_LOW"
	// diskInterval is the time between two reads of the free space. Even a fast disk does not fill
	// MinFreeBytes in it.
	diskInterval = time.Second
	// diskDelay is the retry delay for a refused caller.
	diskDelay = 10 * time.Second
	// measureEvery is the number of reads of the free space for each measurement of the data's
	// size.
	measureEvery = 10
	// dirDepth is more levels than a data directory has.
	dirDepth = 6
)

// DiskOptions configure a Disk. All are required but MinFreeBytes.
type DiskOptions struct {
	FS vfs.FS
	// Dir is the data directory.
	Dir string
	// Free returns the bytes that this process may still write below a directory.
	Free func(dir string) (uint64, error)
	// MinFreeBytes is the free space below which appends are refused. A value that is not positive
	// disables the check.
	MinFreeBytes int64
	Alerts       *Alerts
	Logger       *slog.Logger
	Registry     *prometheus.Registry
}

// Disk watches the free space of the data directory and admits appends while there is enough. A
// node stops if it cannot write its log (D10), and a full log cannot be truncated, because
// truncation needs space too. Reads continue.
type Disk struct {
	opts    DiskOptions
	metrics *diskMetrics
	low     atomic.Pointer[contract.Error] // the error of refused appends; nil: appends are taken
	data    atomic.Uint64                  // bytes below the data directory
}

// NewDisk makes a Disk. It has no readings before Watch.
func NewDisk(opts DiskOptions) *Disk {
	return &Disk{opts: opts, metrics: newDiskMetrics(opts.Registry)}
}

// Close unregisters the metrics.
func (d *Disk) Close() error {
	d.metrics.unregister(d.opts.Registry)
	return nil
}

// Watch reads the free space until ctx ends.
func (d *Disk) Watch(ctx context.Context) {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for i := 0; ; i++ {
		d.Check()
		if i%measureEvery == 0 {
			d.Measure()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Check reads the free space. It sets whether appends are refused, and logs when refusal begins and
// ends.
func (d *Disk) Check() {
	free, err := d.opts.Free(d.opts.Dir)
	if err != nil {
		d.opts.Logger.Warn("cannot read the free disk space", "dir", d.opts.Dir, "err", err)
		return
	}
	d.metrics.free.Set(float64(free))
	low := d.opts.MinFreeBytes > 0 && free < uint64(d.opts.MinFreeBytes)
	d.opts.Alerts.Set(alertDiskLow, low)
	if !low {
		if d.low.Swap(nil) != nil {
			d.opts.Logger.Info("disk has space again; taking appends", "alert", alertDiskLow)
		}
		return
	}
	if d.low.Swap(d.refusal(free)) == nil {
		d.metrics.alerts.Inc()
		d.opts.Logger.Error("disk nearly full; refusing appends", "alert", alertDiskLow,
			"dir", d.opts.Dir, "freeMiB", free>>20, "minFreeDiskMiB", d.opts.MinFreeBytes>>20)
	}
}

func (d *Disk) refusal(free uint64) *contract.Error {
	return &contract.Error{
		Reason: contract.ReasonDiskLow, RetryAfter: diskDelay,
		Message: fmt.Sprintf("the node's disk has %d MiB left, less than %d MiB (--min-free-disk): "+
			"free disk space there, or let another node lead (runlog cluster transfer). Nothing was stored",
			free>>20, d.opts.MinFreeBytes>>20),
		Metadata: map[string]string{"alert": alertDiskLow, "free_bytes": strconv.FormatUint(free, 10)},
	}
}

// Refusal returns the error with which an append is refused now; nil: the disk has space.
func (d *Disk) Refusal() *contract.Error { return d.low.Load() }

// admit refuses an append while the disk is nearly full.
func (d *Disk) admit() error {
	if low := d.low.Load(); low != nil {
		d.metrics.refused.Inc()
		return low
	}
	return nil
}

// Usage returns the free bytes of the disk, and the bytes below the data directory. It also raises
// or clears DISK_LOW, so that a status never says less than the disk.
func (d *Disk) Usage() (free, data uint64) {
	d.Check()
	free, _ = d.opts.Free(d.opts.Dir) // Watch logs the error.
	return free, d.data.Load()
}

// Measure counts the bytes below the data directory.
func (d *Disk) Measure() { d.data.Store(bytesBelow(d.opts.FS, d.opts.Dir, dirDepth)) }

// bytesBelow counts the bytes of the files at most the given levels below a directory. Files that
// are removed meanwhile may count.
func bytesBelow(disk vfs.FS, dir string, levels int) (bytes uint64) {
	names, _ := disk.List(dir)
	for _, name := range names {
		path := disk.PathJoin(dir, name)
		info, err := disk.Stat(path)
		switch {
		case err != nil:
		case info.Mode().IsRegular():
			bytes += uint64(info.Size())
		case info.IsDir() && levels > 1: // A link that leads back up ends there.
			bytes += bytesBelow(disk, path, levels-1)
		}
	}
	return bytes
}
