package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/record"
)

var fuzzCluster = ClusterID{1}

func fuzzEvent(n int) contract.Event {
	e := contract.Event{
		EventID: contract.EventID{byte(n)}, Type: contract.StepStarted, RunID: "run",
		TenantID: "t", ProjectID: "p", EnvironmentID: "e", PlanID: "plan", PlanVersion: "1",
		StepID: fmt.Sprint(n), LogicalAttemptID: 1, EngineAttemptID: 1, KeyDerived: true, Payload: []byte(`{}`),
	}
	e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, 1, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
	return e
}

func fuzzCommands(t testing.TB) []Command {
	t.Helper()
	last, none, fence := uint64(2), uint64(0), uint64(3)
	large := fuzzEvent(4)
	large.Payload = []byte(`{"x":"` + strings.Repeat("large ", 200) + `"}`)
	other := fuzzEvent(5)
	other.PlanID, other.KeyDerived, other.IdempotencyKey = "other", false, "key"
	var commands []Command
	for _, a := range []*Append{
		{RunID: "run", Events: []contract.Event{fuzzEvent(0), fuzzEvent(1)}},
		{RunID: "run", Events: []contract.Event{fuzzEvent(1), fuzzEvent(2), fuzzEvent(2), other}, ExpectedLastSeq: &last, Fence: &none},
		{RunID: "new", Events: []contract.Event{fuzzEvent(3)}},
		{RunID: "run", Events: []contract.Event{large}},
		{RunID: "run", Events: []contract.Event{fuzzEvent(6)}, Fence: &fence, AppendedBy: contract.Author{Name: "worker", TokenID: "7"}},
		{RunID: "run", Events: []contract.Event{fuzzEvent(0), fuzzEvent(7)}, OnlyNew: true},
		{RunID: "made", Create: &Creation{
			Scope:    Scope{TenantID: "t", ProjectID: "p", EnvironmentID: "e"},
			Metadata: Metadata{PlanRef: &PlanRef{PlanID: "plan"}, Labels: map[string]string{"a": "b"}},
		}},
	} {
		c, err := EncodeAppend(a)
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, c)
	}
	two, err := AppendOperation(&Append{RunID: "run", Events: []contract.Event{fuzzEvent(6)}})
	if err != nil {
		t.Fatal(err)
	}
	raise, err := RaiseLevel(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	put, refuse := Operation{Kind: fuzzMachine{}.Kind(), Data: []byte("key")}, Operation{Kind: fuzzMachine{}.Kind()}
	for _, ops := range [][]Operation{{put}, {put, two}, {two, put, refuse}, {raise, put}, {two, two, put, put}} {
		c, err := EncodeCommand(ops...)
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, c)
	}
	return commands
}

// fuzzMachine stores what it gets, refuses nothing, and does not know what begins with a zero.
type fuzzMachine struct{}

func (fuzzMachine) Kind() uint32        { return 99 }
func (fuzzMachine) Tables() []Table     { return []Table{{Prefix: []byte("F")}} }
func (fuzzMachine) Level([]byte) uint32 { return CoreLevel }

func (fuzzMachine) Apply(tx *Tx, op []byte) (reply []byte, refused, fatal error) {
	tx.Set(append([]byte("F"), op...), op)
	switch {
	case len(op) == 0:
		return nil, errors.New("nothing to store"), nil
	case op[0] == 0:
		return nil, nil, ErrUnknownOperation
	}
	return op, nil, nil
}

func seal(clock int64, commands ...Command) []byte {
	p := NewProposal(fuzzCluster, 0)
	for _, c := range commands {
		p.Add(c)
	}
	return p.Seal(clock)
}

// walk returns the commands of a log entry.
func walk(data []byte) (record.Entry, []Command, error) {
	e, err := record.ParseProposal(data)
	if err != nil {
		return e, nil, err
	}
	var commands []Command
	for range e.Count {
		c, err := e.Next()
		if err != nil {
			return e, nil, err
		}
		commands = append(commands, record.CommandOf(c))
	}
	return e, commands, e.End()
}

// FuzzParseProposal proves D1: an entry that is accepted is exactly what its commands encode to, so
// that nothing in it can go unnoticed.
func FuzzParseProposal(f *testing.F) {
	commands := fuzzCommands(f)
	f.Add(seal(1))
	f.Add(seal(2, commands[0]))
	f.Add(seal(3, commands...))
	f.Add(append(seal(2, commands[5]), 0, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		check := func(data []byte) {
			e, commands, err := walk(data)
			if err != nil {
				return
			}
			p := NewProposal(e.Cluster, 0)
			for _, c := range commands {
				p.Add(c)
			}
			again := p.Seal(e.Clock)
			binary.BigEndian.PutUint32(again[17:], e.Partition)
			again = again[:len(again)-4]
			again = binary.BigEndian.AppendUint32(again, crc32.Checksum(again, record.Castagnoli))
			if !bytes.Equal(again, data) {
				t.Errorf("%x\nwas taken for\n%x", data, again)
			}
		}
		check(data)
		if len(data) >= 4 { // Past the checksum, where the fuzzer would never come.
			check(binary.BigEndian.AppendUint32(bytes.Clone(data), crc32.Checksum(data, record.Castagnoli)))
		}
	})
}

// FuzzParseCommand proves D10: whatever bytes a command is, it is refused, or it is an append or
// operations and nothing else, which are encoded and read again as they were.
func FuzzParseCommand(f *testing.F) {
	first := record.CommandBytes(fuzzCommands(f)[0])
	for _, c := range fuzzCommands(f) {
		data := record.CommandBytes(c)
		f.Add(data)
		f.Add(append(bytes.Clone(data), first...)) // both forms
		f.Add(append(bytes.Clone(data), 0x1a, 0))  // an unknown field
		f.Add(data[:len(data)/2])
	}
	f.Add([]byte{0x12, 0x02, 0x08, 0x01})             // an operation without data
	f.Add([]byte{0x12, 0x02, 0x12, 0x00})             // without a kind
	f.Add([]byte{0x12, 0x04, 0x08, 0x00, 0x12, 0x00}) // of kind 0
	f.Add([]byte{0x10, 0x01})                         // an operation that is a number
	// a kind beyond 32 bits
	f.Add([]byte{0x12, 0x09, 0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 0x12, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		var a record.AppendCommand
		ops, err := record.ParseCommand(data, &a, nil)
		if err != nil {
			return
		}
		if record.IsAppend(record.CommandOf(data)) && len(ops) > 0 {
			t.Fatalf("%d operations, and it begins like an append", len(ops))
		}
		if len(ops) == 0 {
			return // FuzzApplyCommand and TestWire look at appends
		}
		var again []Operation
		for _, op := range ops {
			again = append(again, Operation(op))
		}
		c, err := EncodeCommand(again...)
		if err != nil {
			t.Fatal(err)
		}
		back, err := record.ParseCommand(record.CommandBytes(c), &a, nil)
		if err != nil || !slices.EqualFunc(ops, back, func(x, y record.ParsedOperation) bool { return x.Kind == y.Kind && bytes.Equal(x.Data, y.Data) }) {
			t.Fatalf("%v\nreads as\n%v, %v", ops, back, err)
		}
	})
}

// TestParseProposalFlips proves D1: no flipped bit in an entry is accepted.
func TestParseProposalFlips(t *testing.T) {
	data := seal(1, fuzzCommands(t)[0])
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			if _, _, err := walk(data); err == nil {
				t.Errorf("bit %d of byte %d may flip", bit, i)
			}
			data[i] ^= 1 << bit
		}
	}
	for n := range data {
		if _, _, err := walk(data[:n]); err == nil {
			t.Errorf("may be cut off after %d bytes", n)
		}
	}
}

func fuzzChunk(t testing.TB) []byte {
	t.Helper()
	chunk := record.BeginChunk(nil, 1_893_456_000_000_000_000)
	for i, c := range fuzzCommands(t)[:4] {
		var m recordv1.Command
		if err := proto.Unmarshal(record.CommandBytes(c), &m); err != nil {
			t.Fatal(err)
		}
		a := m.GetAppend()
		for _, b := range a.Blocks {
			out := record.Block{
				Run: record.RunRef{Bucket: 7, No: uint64(i) + 1}, Count: uint64(b.Count), FirstSeq: 7, Prev: contract.Digest{9},
				Codec: byte(b.Codec), RawSize: uint64(b.RawSize), Data: b.Data,
			}
			if i == 1 {
				out.Plan, out.Dead = a.Plan, []uint32{0, 2}
			}
			chunk = out.Append(chunk)
		}
	}
	mark := record.Block{Run: record.RunRef{Bucket: 65535, No: 3}}
	return mark.Append(chunk)
}

// FuzzOpenChunk proves that no chunk makes a reader panic or take without end, and that what is
// read encodes to what reads the same.
func FuzzOpenChunk(f *testing.F) {
	chunk := fuzzChunk(f)
	f.Add(chunk)
	f.Add(chunk[:len(chunk)/2])
	f.Add(record.BeginChunk(nil, 0))
	// Counts that no block has room for.
	f.Add((&record.Block{Run: record.RunRef{Bucket: 1, No: 1}, Count: math.MaxUint64, FirstSeq: 1}).Append(record.BeginChunk(nil, 1)))
	f.Add((&record.Block{Run: record.RunRef{Bucket: 1, No: 1}, Count: 1, FirstSeq: 1, Dead: []uint32{0, 1, 2}}).Append(record.BeginChunk(nil, 1)))
	f.Add((&record.Block{Run: record.RunRef{Bucket: 1, No: 1}, Count: 1 << 32, FirstSeq: 1, Data: []byte{0}}).Append(record.BeginChunk(nil, 1)))
	// 4 GB in six bytes.
	f.Add((&record.Block{Run: record.RunRef{Bucket: 1, No: 1}, Count: 1, FirstSeq: 1, Codec: record.CodecS2, RawSize: math.MaxUint32, Data: []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}}).Append(record.BeginChunk(nil, 1)))
	run := &recordv1.RunIdentity{RunId: "run", Scope: &recordv1.Scope{TenantId: "t"}, Plan: &recordv1.Plan{PlanId: "p"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, blocks, err := readBlocks(data)
		if err != nil {
			return
		}
		again := record.BeginChunk(nil, c.PersistedAt)
		for i := range blocks {
			again = blocks[i].Append(again)
			records, err := blocks[i].Records(run, 1, c.PersistedAt, Whole)
			if err == nil && blocks[i].Count != uint64(len(records)+len(blocks[i].Dead)) {
				t.Errorf("block of %d bodies, %d of them dead, gives %d records", blocks[i].Count, len(blocks[i].Dead), len(records))
			}
		}
		if _, blocksAgain, err := readBlocks(again); err != nil || !reflect.DeepEqual(blocks, blocksAgain) {
			t.Errorf("%+v\nreads as\n%+v, error %v", blocks, blocksAgain, err)
		}
	})
}

func readBlocks(data []byte) (c record.ChunkReader, blocks []record.Block, err error) {
	if c, err = record.OpenChunk(data); err != nil {
		return c, nil, err
	}
	for {
		var b record.Block
		ok, err := c.Next(&b)
		if err != nil || !ok {
			return c, blocks, err
		}
		blocks = append(blocks, b)
	}
}

// FuzzApplyCommand proves D10 and APP-3: whatever bytes a command is, applying it gives an outcome
// or an error, never a panic; an error leaves nothing of its proposal behind, and nothing is
// applied after it.
func FuzzApplyCommand(f *testing.F) {
	commands := fuzzCommands(f)
	for _, c := range commands {
		f.Add(record.CommandBytes(c))
	}
	f.Add([]byte{})
	// More bodies than headers, fewer, and headers of a wrong size: each after the run was made.
	var m recordv1.Command
	if err := proto.Unmarshal(record.CommandBytes(commands[2]), &m); err != nil {
		f.Fatal(err)
	}
	for _, change := range []func(*recordv1.Append){
		func(a *recordv1.Append) { a.Blocks[0].Count = 2 },
		func(a *recordv1.Append) { a.Blocks = nil },
		func(a *recordv1.Append) { a.Headers = a.Headers[1:] },
		func(a *recordv1.Append) { a.Scope, a.Plan = nil, nil },
		func(a *recordv1.Append) { a.RunId = "run" },
	} {
		bad := proto.CloneOf(&m)
		change(bad.GetAppend())
		data, err := record.Marshal(bad)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fs := vfs.NewMem()
		s := fuzzStore(t, fs)
		if _, err := s.Apply(1, 1, seal(1, commands[0])); err != nil {
			t.Fatal(err)
		}
		before, applied := fuzzRows(t, s), s.Applied()
		// A good command in front of it shows whether a proposal can be applied in part.
		outcomes, err := s.Apply(2, 1, seal(2, commands[3], record.CommandOf(data)))
		if err != nil {
			if outcomes != nil || s.Applied() != applied || !reflect.DeepEqual(fuzzRows(t, s), before) {
				t.Errorf("refused with %v, and yet something changed", err)
			}
			if _, err := s.Apply(3, 1, seal(3, commands[0])); err == nil {
				t.Error("goes on after an entry that could not be applied")
			}
		} else if len(outcomes) != 2 || outcomes[0].Err != nil || s.Applied().Index != 2 {
			t.Errorf("outcomes %+v, applied %+v", outcomes, s.Applied())
		}
		readThrough(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := fuzzStore(t, fs)
		if got := again.Applied(); err != nil && got != applied {
			t.Errorf("after a restart: applied %+v, want %+v", got, applied)
		}
		readThrough(again)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func fuzzStore(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Options{
		Dir: "store", FS: fs, Cluster: fuzzCluster, CacheBytes: 1 << 20, MemTableBytes: 64 << 10,
		Machines: []Machine{fuzzMachine{}}, FeatureLevel: 2, Fail: func(err error) { panic(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fuzzRows(t *testing.T, s *Store) [][]byte {
	t.Helper()
	rows, err := s.Dump()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// readThrough reads everything. What a body holds is opaque to apply, so a garbled one may give an
// error.
func readThrough(s *Store) {
	for c, err := range s.Follow(Whole).Log(0) {
		if err != nil {
			break
		}
		v, err := s.View(c.Run.RunID)
		if err != nil {
			continue
		}
		for _, err := range v.Events(0) {
			if err != nil {
				break
			}
		}
		_ = v.Close()
	}
}

// TestApplyErrors proves D10: entries of another cluster, of another partition, damaged or cut off
// ones are refused and leave the store as it was.
func TestApplyErrors(t *testing.T) {
	good := seal(1, fuzzCommands(t)[0])
	change := func(f func([]byte) []byte) []byte {
		b := f(bytes.Clone(good[:len(good)-4]))
		return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, record.Castagnoli))
	}
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"empty":             {nil, record.ErrProposal},
		"flipped":           {append(bytes.Clone(good[:len(good)-1]), good[len(good)-1]^1), record.ErrProposal},
		"format":            {change(func(b []byte) []byte { b[0] = 2; return b }), record.ErrProposal},
		"cluster":           {change(func(b []byte) []byte { b[1] ^= 1; return b }), ErrForeign},
		"partition":         {change(func(b []byte) []byte { b[20] = 1; return b }), ErrForeign},
		"a command too few": {change(func(b []byte) []byte { b[32]++; return b }), record.ErrProposal},
		"bytes too many":    {change(func(b []byte) []byte { return append(b, 1) }), record.ErrProposal},
		"a count beyond":    {change(func(b []byte) []byte { b[29] = 0xff; return b }), record.ErrProposal},
		"no kind":           {seal(1, Command{}), record.ErrCommand},
	} {
		t.Run(name, func(t *testing.T) {
			s := fuzzStore(t, vfs.NewMem())
			outcomes, err := s.Apply(1, 1, c.data)
			if !errors.Is(err, c.want) || outcomes != nil {
				t.Errorf("outcomes %v, error %v, want %v", outcomes, err, c.want)
			}
			if rows := fuzzRows(t, s); len(rows) > 0 {
				t.Errorf("%d rows were written", len(rows)/2)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
