package bulk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/internal/directory"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// ErrFull says that a Bulk has no proposal left to put events into.
var ErrFull = errors.New("bulk: no proposal is left for more runs")

// Bulk is a store that is being filled. One goroutine uses it. It must be closed.
type Bulk struct {
	dir         *directory.Directory
	cluster     record.ClusterID
	applied     record.Applied // before the first run
	scratch     string         // directory of the files
	perProposal int
	slots       []proposal
	tables      map[string]*table // by the begin of their keys

	nextRun   uint64
	events    uint64
	lastRunID string

	open     int // slots that are used, the open one included
	inSlot   int // events in the open slot
	made     []record.RunRef
	chunk    []byte
	blocks   uint32 // in chunk
	receipts []record.KeyedReceipt
	packed   []record.PackedReceipt
	command  record.AppendCommand // the one being added
	keyer    record.Keyer
	row      []byte
}

// proposal is one that runs can be put into.
type proposal struct {
	position record.Position
	stamp    int64
	chunk    uint32 // the next one
	records  uint32 // so far
	tenants  record.Tenants
}

// table is a table on its way into files.
type table struct {
	w     *sstable.Writer
	paths []string
}

// Open opens a store that nothing else has open. Each of its proposals takes about perProposal
// events. The files grow next to the store's directory, so that it can take them over without a
// copy.
func Open(opts storage.Options, perProposal int) (*Bulk, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if perProposal < 1 {
		return nil, fmt.Errorf("bulk: %d events a proposal, want at least 1", perProposal)
	}
	dir, state, err := directory.Open(directory.Options{
		Dir: opts.Dir, FS: opts.FS, Cluster: opts.Cluster, CacheBytes: opts.CacheBytes, MemTableBytes: opts.MemTableBytes, OpenFiles: opts.OpenFiles,
		FeatureLevel: opts.FeatureLevel, Logger: opts.Logger, Fail: opts.Fail,
	})
	if err != nil {
		return nil, err
	}
	b := &Bulk{
		dir: dir, cluster: opts.Cluster, applied: state.Applied,
		perProposal: perProposal, tables: map[string]*table{}, nextRun: state.Applied.NextRun, events: state.Applied.Events,
	}
	if b.slots, err = findSlots(dir.Live()); err == nil {
		b.scratch, err = os.MkdirTemp(filepath.Dir(opts.Dir), "bulk-")
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return b, nil
}

// findSlots finds every proposal of the store, and how many chunks it has.
func findSlots(db *pebble.DB) (slots []proposal, err error) {
	it, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	from := keys.AppendStamp(nil, 0)
	for it.SeekGE(from); it.Valid() && it.Key()[0] == from[0]; it.Next() {
		if len(it.Key()) != 9 || len(it.Value()) != 8 {
			return nil, fmt.Errorf("%w: stamp", record.ErrRow)
		}
		slots = append(slots, proposal{
			position: record.Position(binary.BigEndian.Uint64(it.Value())),
			stamp:    int64(binary.BigEndian.Uint64(it.Key()[1:])),
		})
	}
	rows := record.Rows{Reader: db}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for i := range slots {
		s := &slots[i]
		for it.SeekGE(keys.AppendChunk(nil, uint64(s.position), 0)); it.Valid(); it.Next() {
			position, n, ok := keys.ParseChunk(it.Key())
			if !ok || position != uint64(s.position) {
				break
			}
			if err := s.noteTenants(&rows, n, it.Value()); err != nil {
				return nil, err
			}
			s.chunk = n + 1
		}
	}
	return slots, it.Error()
}

// noteTenants notes whose the blocks of a chunk are that is there.
func (s *proposal) noteTenants(rows *record.Rows, chunk uint32, data []byte) error {
	c, err := record.OpenChunk(data)
	if err != nil {
		return err
	}
	for no := uint32(0); ; no++ {
		var b record.Block
		ok, err := c.Next(&b)
		if err != nil || !ok {
			return err
		}
		if b.Count == 0 {
			continue
		}
		id, err := rows.Identity(b.Run)
		if err != nil {
			return err
		}
		s.tenants.Add(record.HashTenant(id.Scope.GetTenantId()), chunk, no)
	}
}

// Room is how many events can be added, about.
func (b *Bulk) Room() int { return len(b.slots) * b.perProposal }

// Add puts a run into the store: an append that EncodeAppend made, with all events of the run. Runs
// come in rising order of their ids, and none of them is in the store; keys do not repeat within a
// run.
func (b *Bulk) Add(c record.Command) error {
	m, err := b.parse(c)
	if err != nil {
		return err
	}
	if b.open == 0 || b.inSlot >= b.perProposal {
		if err := b.nextSlot(); err != nil {
			return err
		}
	}
	slot := &b.slots[b.open-1]
	ref := record.RunRef{Bucket: uint16(m.Scope.Bucket()), No: b.nextRun}
	b.nextRun++
	b.made = append(b.made, ref)
	identity, err := record.Deterministic.Marshal(&recordv1.RunIdentity{
		RunId: b.lastRunID, Scope: m.Scope.Message(), Plan: m.Plan.Message(), CreatedAt: slot.stamp, CreatedPosition: uint64(slot.position),
	})
	if err != nil {
		return err
	}
	if b.applied.ReceiptKey, err = m.KeyFor(b.applied.ReceiptKey); err != nil {
		return err
	}
	b.keyer.Use(b.applied.ReceiptKey)
	h := record.Head{PersistedAt: slot.stamp, Position: slot.position}
	h.Statuses = m.Changes.After(contract.StatusPending.Only(), func(int) bool { return true })
	if err := b.addBlocks(ref, m, &h, slot); err != nil {
		return err
	}
	if err := b.addReceipts(ref, &h); err != nil {
		return err
	}
	b.events += h.LastSeq
	b.inSlot += int(h.LastSeq)
	return errors.Join(
		b.set(keys.AppendIdentity(nil, ref), identity),
		b.set(keys.AppendRunID(nil, b.lastRunID), ref.Append(nil)),
		b.set(keys.AppendBucket(nil, ref.No), binary.BigEndian.AppendUint16(nil, ref.Bucket)),
		b.set(keys.AppendHead(nil, ref), h.Append(nil)),
	)
}

// parse takes the append of a new run apart; what it returns aliases the command.
func (b *Bulk) parse(c record.Command) (*record.AppendCommand, error) {
	m := &b.command
	ops, err := record.ParseCommandOf(c, m, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", record.ErrCommand, err)
	}
	run := string(m.RunID)
	switch {
	case len(ops) > 0 || m.Create != nil || m.Expected != nil || m.Imports() || len(m.Headers) == 0:
		return nil, errors.New("bulk: only plain appends with events can be added in bulk")
	case run <= b.lastRunID:
		return nil, fmt.Errorf("bulk: run %q is added after %q", run, b.lastRunID)
	}
	if err := m.RefuseNew(); err != nil {
		return nil, err
	}
	rows := record.Rows{Reader: b.dir.Live()}
	_, found, err := rows.Ref(run)
	if err = errors.Join(err, rows.Close()); err != nil || found {
		return nil, errors.Join(err, &record.RunExistsError{RunID: run, Fields: []string{"events"}})
	}
	b.lastRunID = run
	return m, nil
}

// nextSlot ends the open proposal and opens the next one.
func (b *Bulk) nextSlot() error {
	if err := b.endSlot(); err != nil {
		return err
	}
	if b.open == len(b.slots) {
		return fmt.Errorf("%w: the store has %d proposals, with %d events each", ErrFull, len(b.slots), b.perProposal)
	}
	b.open++
	b.inSlot = 0
	return nil
}

// endSlot says which runs the proposal has made, as commit does.
func (b *Bulk) endSlot() error {
	if b.open == 0 {
		return nil
	}
	slot := &b.slots[b.open-1]
	for _, ref := range b.made {
		if err := b.addBlock(&record.Block{Run: ref}, slot); err != nil {
			return err
		}
	}
	b.made = b.made[:0]
	return b.flushChunk(slot)
}

// addBlocks stores the bodies of a run and gathers its receipts.
func (b *Bulk) addBlocks(ref record.RunRef, m *record.AppendCommand, h *record.Head, slot *proposal) error {
	headers, tenant := m.Headers, record.HashTenant(m.Scope.Tenant)
	b.receipts = b.receipts[:0]
	for _, body := range m.Blocks {
		out := record.Block{
			Run: ref, Count: uint64(body.Count), FirstSeq: h.LastSeq + 1, Prev: h.Chain,
			Codec: byte(body.Codec), RawSize: uint64(body.RawSize), Data: body.Data,
		}
		for range body.Count {
			if len(headers) < record.HeaderSize {
				return fmt.Errorf("%w: more bodies than headers", record.ErrCommand)
			}
			e := record.ParseHeader(headers)
			headers = headers[record.HeaderSize:]
			h.LastSeq++
			h.Plain++
			h.Chain = contract.ChainDigest(h.Chain, e.Record, h.LastSeq, slot.stamp)
			b.receipts = append(b.receipts, record.KeyedReceipt{Key: e.Key, Receipt: record.Receipt{
				RunSeq: h.LastSeq, PersistedAt: slot.stamp, EventID: e.EventID, Fingerprint: m.Fingerprint(len(b.receipts), &e, &b.keyer),
			}})
		}
		slot.tenants.Add(tenant, slot.chunk, b.blocks)
		if err := b.addBlock(&out, slot); err != nil {
			return err
		}
	}
	if len(headers) > 0 {
		return fmt.Errorf("%w: %d bytes of headers too many", record.ErrCommand, len(headers))
	}
	return nil
}

func (b *Bulk) addBlock(out *record.Block, slot *proposal) error {
	if b.blocks == 0 {
		b.chunk = record.BeginChunk(b.chunk[:0], slot.stamp)
	}
	out.Offset = slot.records
	slot.records += out.Live()
	b.chunk = out.Append(b.chunk)
	if out.Count > 0 {
		p := record.Place{Position: slot.position, Chunk: slot.chunk, Block: b.blocks}
		if err := b.set(keys.AppendPlace(nil, out.Run, out.FirstSeq), p.Append(nil)); err != nil {
			return err
		}
	}
	b.blocks++
	if len(b.chunk) >= record.ChunkTarget {
		return b.flushChunk(slot)
	}
	return nil
}

func (b *Bulk) flushChunk(slot *proposal) error {
	if b.blocks == 0 {
		return nil
	}
	err := b.set(keys.AppendChunk(nil, uint64(slot.position), slot.chunk), b.chunk)
	b.blocks = 0
	slot.chunk++
	return err
}

// addReceipts writes those of a run, in the order of their keys, and packed if the run has ended.
func (b *Bulk) addReceipts(ref record.RunRef, h *record.Head) error {
	slices.SortFunc(b.receipts, func(x, y record.KeyedReceipt) int { return bytes.Compare(x.Key[:], y.Key[:]) })
	for i := 1; i < len(b.receipts); i++ {
		if b.receipts[i].Key == b.receipts[i-1].Key {
			return fmt.Errorf("bulk: run %q has a key twice", b.lastRunID)
		}
	}
	if h.PackingDue() {
		return b.addPacked(ref, h)
	}
	for i := range b.receipts {
		r := &b.receipts[i]
		b.row = keys.AppendReceipt(b.row[:0], ref, r.Key[:])
		split := len(b.row)
		b.row = r.Append(b.row)
		if err := b.set(b.row[:split], b.row[split:]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bulk) addPacked(ref record.RunRef, h *record.Head) (err error) {
	b.packed, err = record.Merge(b.packed[:0], nil, b.receipts, func(*record.KeyedReceipt) error {
		h.Packed++
		h.Plain--
		return nil
	})
	if len(b.packed) < len(b.receipts) && err == nil {
		err = fmt.Errorf("bulk: two keys of run %q begin with the same bytes", b.lastRunID)
	}
	if err == nil {
		err = record.PackedRows(ref, keys.AppendPacked(nil, ref), b.packed, b.set)
	}
	return err
}

// addTenants writes the rows of all proposals, whose order is that of tenants first.
func (b *Bulk) addTenants() error {
	type row struct{ key, value []byte }
	var rows []row
	for i := range b.slots[:b.open] {
		slot := &b.slots[i]
		err := slot.tenants.Rows(slot.position, func(key, value []byte) error {
			rows = append(rows, row{bytes.Clone(key), bytes.Clone(value)})
			return nil
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(rows, func(x, y row) int { return bytes.Compare(x.key, y.key) })
	for _, r := range rows {
		if err := b.set(r.key, r.value); err != nil {
			return err
		}
	}
	return nil
}

// set appends a row to its table. Runs come by number, so a table of runs has files of its own for
// each bucket: in a bucket, keys rise.
func (b *Bulk) set(key, value []byte) error {
	begin := key[:1]
	if keys.OfRun(key) {
		begin = key[:3]
	}
	t := b.tables[string(begin)]
	if t == nil {
		t = &table{}
		b.tables[string(begin)] = t
	}
	if t.w != nil && t.w.Raw().EstimatedSize() >= directory.MaxFileBytes {
		if err := t.close(); err != nil {
			return err
		}
	}
	if t.w == nil {
		path := filepath.Join(b.scratch, fmt.Sprintf("%x-%d", begin, len(t.paths)))
		f, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), b.dir.TableOptions())
		t.paths = append(t.paths, path)
	}
	return t.w.Set(key, value)
}

func (t *table) close() error {
	if t.w == nil {
		return nil
	}
	err := t.w.Close()
	t.w = nil
	return err
}

// Close hands everything to the store, durably, and closes it. After an error the store is as it
// was, or has rows that nothing points at: throw it away.
func (b *Bulk) Close() error {
	err := errors.Join(b.endSlot(), b.addTenants())
	var paths []string
	for _, t := range b.tables {
		err = errors.Join(err, t.close())
		paths = append(paths, t.paths...)
	}
	if err == nil && len(paths) > 0 {
		err = b.dir.Live().Ingest(context.Background(), paths)
	}
	if err == nil {
		err = b.advance()
	}
	return errors.Join(err, b.dir.Close(), os.RemoveAll(b.scratch))
}

// advance makes the runs count.
func (b *Bulk) advance() error {
	applied := b.applied
	applied.NextRun, applied.Events = b.nextRun, b.events
	row, err := record.AppliedRow(&applied, b.cluster)
	if err != nil {
		return err
	}
	return b.dir.Live().Set(keys.Applied, row, pebble.NoSync) // Close flushes
}
