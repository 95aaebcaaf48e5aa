package proof

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
	"runlog/proto/contract/contracttest"
)

// testRecords are n records that show every form that a line can have.
func testRecords(runID string, n int) []Record {
	payloads := []string{`{}`, `{ "a" : 1.50, "b":"<\u00e9é>" }`, "{\n\t\"a\": 1\r\n}", "{\"a\":1} ", `{"a":1,"a":2}`, "{\"a\":\"\x80\"}"}
	var all []Record
	for i := range n {
		r := Record(*contracttest.Whole()) // with what the verifiers of other programs must know
		r.EventID = contract.EventID{byte(i), 1, 2, 3, 15: 7}
		r.RunSeq, r.PersistedAt, r.RunID = uint64(i+1), int64(1_770_805_800_000_000_000+i*1_000_000_007), runID
		r.TenantID, r.ProjectID, r.EnvironmentID, r.PlanID, r.PlanVersion, r.Absent = "tenant", "project", "prod", "plan", "v1", 0
		r.StepID, r.EngineAttemptID, r.Contract, r.EmittedBy = fmt.Sprint("step-", i), uint32(i+1), contract.Line2, "<producer> & \u2028"
		r.Payload, r.Original = []byte(payloads[i%len(payloads)]), contract.Original{}
		r.AppendedBy = contract.Author{Name: []string{"", "worker \u00e9 \"<1>\""}[i/2%2], TokenID: []string{"", "", "", "7 \u00e9"}[i%4]}
		if i%2 == 0 {
			r.Extensions = nil
		}
		if i%4 > 1 {
			r.Original = contract.Original{PersistedAt: r.PersistedAt - 1e15, Source: []string{"", "there \u00e9"}[i%2]}
		}
		if i%3 == 2 {
			r.Contract, r.Absent = contract.Line11, contract.AbsentTenant|contract.AbsentPlanVersion
			r.TenantID, r.PlanVersion, r.StepID, r.EmittedBy, r.CausedBySignalID, r.ParentEventID = "", "", "", "", "", ""
		}
		all = append(all, r)
	}
	return all
}

func testHead(runID string, records []Record) RunHead {
	h := RunHead{RunID: runID, TenantID: "tenant", ProjectID: "project", EnvironmentID: "prod", PlanID: "plan", PlanVersion: "v1", CreatedAt: 1_770_805_800_000_000_000}
	for i := range records {
		h.Chain = records[i].Chain(h.Chain)
		h.LastSeq, h.PersistedAt = records[i].RunSeq, records[i].PersistedAt
	}
	return h
}

// testTree is a tree over heads, and the path of one.
func testTree(t testing.TB, heads []RunHead, at int) (tlog.Hash, []tlog.Hash) {
	t.Helper()
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	for i := range heads {
		hashes, err := tlog.StoredHashesForRecordHash(int64(i), heads[i].Leaf(), reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
	}
	root, err := tlog.TreeHash(int64(len(heads)), reader)
	if err != nil {
		t.Fatal(err)
	}
	path, err := tlog.ProveRecord(int64(len(heads)), int64(at), reader)
	if err != nil {
		t.Fatal(err)
	}
	return root, path
}

// testLog is a tree of records: those of five runs, one after the other in turns.
type testLog struct {
	size   int64
	stored []tlog.Hash
	// Of each run by its index: the places of its records.
	places [][]Place
}

func (l *testLog) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	for _, i := range indexes {
		out = append(out, l.stored[i])
	}
	return out, nil
}

func (l *testLog) root(t testing.TB, size int64) tlog.Hash {
	t.Helper()
	root, err := tlog.TreeHash(size, l)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func (l *testLog) add(t testing.TB, leaf contract.Leaf) {
	t.Helper()
	hashes, err := tlog.StoredHashesForRecordHash(l.size, leaf.Hash(), l)
	if err != nil {
		t.Fatal(err)
	}
	l.stored, l.size = append(l.stored, hashes...), l.size+1
}

// newTestLog appends the records of runs by the order of their stamps, three to a position.
func newTestLog(t testing.TB, runs [][]Record) *testLog {
	t.Helper()
	l := &testLog{places: make([][]Place, len(runs))}
	chains := make([]contract.Digest, len(runs))
	for more, seq := true, 0; more; seq++ {
		more = false
		for i, records := range runs {
			if seq >= len(records) {
				continue
			}
			more = true
			r := &records[seq]
			chains[i] = r.Chain(chains[i])
			at := Place{Index: l.size, Position: uint64(5 + l.size/3), Offset: uint32(l.size % 3)}
			l.places[i] = append(l.places[i], at)
			l.add(t, contract.Leaf{Chain: chains[i], Position: at.Position, Offset: at.Offset, PersistedAt: r.PersistedAt})
		}
	}
	return l
}

// testCase is a proof of one of five runs, under the second key of a cluster. It continues a
// checkpoint of the first eight records, which the first key has signed.
type testCase struct {
	text    string
	proof   RunProof
	records []Record
	places  []Place
	log     *testLog
	keys    []string
}

// testEnd is when the checkpoint of a testCase is complete.
const testEnd = 1_780_805_900_000_000_000

func newTestCase(t testing.TB, at, n int) *testCase {
	t.Helper()
	c := &testCase{}
	var heads []RunHead
	var runs [][]Record
	for i := range 5 {
		runID := fmt.Sprint("run-", i)
		records := testRecords(runID, 3+i)
		if i == at {
			records = testRecords(runID, n)
			c.records = records
		}
		runs, heads = append(runs, records), append(heads, testHead(runID, records))
	}
	c.log = newTestLog(t, runs)
	c.places = c.log.places[at]
	first, second := testSigner(t, testCluster, 1), testSigner(t, testCluster, 2)
	endorsement, err := first.Sign((&SigningKey{Cluster: testCluster, Number: 2, PublicKey: second.PublicKey()}).Statement())
	if err != nil {
		t.Fatal(err)
	}
	c.keys = []string{first.PublicKey(), second.PublicKey()}
	root, path := testTree(t, heads, at)
	c.proof = RunProof{Head: heads[at], Index: uint64(at), Path: path, Keys: []Key{{PublicKey: c.keys[0]}, {c.keys[1], endorsement}}}
	c.proof.Checkpoint, err = second.SignCheckpoint(&Checkpoint{Cluster: testCluster, Size: uint64(c.log.size), Root: c.log.root(t, c.log.size),
		Position: 99999, CompleteThrough: testEnd, Runs: 5, Heads: root})
	if err != nil {
		t.Fatal(err)
	}
	c.since(t, first, &Checkpoint{Cluster: testCluster, Size: 8, Root: c.log.root(t, 8), Position: 7, CompleteThrough: 1_770_805_900_000_000_000})
	c.text = c.write(t)
	return c
}

// since makes the proof one that continues a checkpoint.
func (c *testCase) since(t testing.TB, by *Signer, kept *Checkpoint) {
	t.Helper()
	var err error
	if c.proof.Since, err = by.SignCheckpoint(kept); err != nil {
		t.Fatal(err)
	}
	if c.proof.Consistency, err = ProveConsistency(int64(kept.Size), c.log.size, c.log); err != nil {
		t.Fatal(err)
	}
}

func testSigner(t testing.TB, cluster [16]byte, seed byte) *Signer {
	t.Helper()
	s, err := NewSigner(cluster, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write writes the proof as it stands, without the checks of a RunWriter.
func (c *testCase) write(t testing.TB) string {
	t.Helper()
	var out bytes.Buffer
	put := func(line []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		out.Write(line)
	}
	put(c.proof.header())
	var chain contract.Digest
	for i := range c.records {
		chain = c.records[i].Chain(chain)
		put(c.records[i].line(c.places[i], chain))
		if (i+1)%InclusionBlock == 0 || i+1 == len(c.records) {
			put(inclusionLine(c.inclusion(t, i/InclusionBlock*InclusionBlock, i+1)))
		}
	}
	put(c.proof.end())
	return out.String()
}

// inclusion proves the records from one on and before another.
func (c *testCase) inclusion(t testing.TB, from, to int) []tlog.Hash {
	t.Helper()
	var indexes []int64
	for _, at := range c.places[from:to] {
		indexes = append(indexes, at.Index)
	}
	hashes, err := ProveInclusion(c.log.size, indexes, c.log)
	if err != nil {
		t.Fatal(err)
	}
	return hashes
}

func verify(text string, keys ...string) error {
	_, err := VerifyRunFile(strings.NewReader(text), keys...)
	return err
}

// TestRunProof: a proof verifies with the key that signed it, and with each key before that one.
func TestRunProof(t *testing.T) {
	for at := range 5 {
		for _, n := range []int{0, 1, 12} {
			c := newTestCase(t, at, n)
			for _, key := range c.keys {
				report, err := VerifyRunFile(strings.NewReader(c.text), key)
				if err != nil {
					t.Fatalf("run %d with %d records: %v\n%s", at, n, err, c.text)
				}
				if report.Head != c.proof.Head || report.Records != uint64(n) || report.Key != c.keys[1] || report.Checkpoint.Size != uint64(c.log.size) ||
					report.Since.Size != 8 || report.Since.Key != c.keys[0] {
					t.Errorf("%+v", report)
				}
			}
			if !IsRunFile([]byte(c.text)) || IsRunFile([]byte(`{"head":`)) {
				t.Error("a proof is not known by its begin")
			}
		}
	}
}

// TestLongRunTR3: a run of 100,000 records is proved a block at a time. Each record is: one that
// was changed is found in whichever block it is, and so are hashes of another block.
func TestLongRunTR3(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 3*InclusionBlock + 1
	}
	c := newTestCase(t, 2, n)
	report, err := VerifyRunFile(strings.NewReader(c.text), c.keys[0])
	if err != nil || report.Records != uint64(n) {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, at := range []int{0, InclusionBlock - 1, InclusionBlock, n - 1} {
		step := fmt.Sprintf("%q", fmt.Sprint("step-", at))
		text := strings.Replace(c.text, step, `"step-x"`, 1)
		if err := verify(text, c.keys[0]); text == c.text || err == nil {
			t.Errorf("record %d of %d was changed: %v", at, n, err)
		}
	}
	lines := strings.SplitAfter(c.text, "\n")
	first, second := 1+InclusionBlock, 2+2*InclusionBlock
	if !strings.HasPrefix(lines[first], `{"inclusion":`) || !strings.HasPrefix(lines[second], `{"inclusion":`) {
		t.Fatalf("no hashes in lines %d and %d", first, second)
	}
	lines[first], lines[second] = lines[second], lines[first]
	if err := verify(strings.Join(lines, ""), c.keys[0]); err == nil {
		t.Error("the hashes of two blocks were exchanged")
	}
}

// TestTamperedBytes: a proof in which any byte was changed, is missing or is one too many is
// refused, and so is one that is cut anywhere.
func TestTamperedBytes(t *testing.T) {
	c := newTestCase(t, 3, 3)
	// The signatures of a first line that was not changed are verified once.
	sound, err := c.proof.Verify(c.keys...)
	if err != nil {
		t.Fatal(err)
	}
	header, err := c.proof.header()
	if err != nil {
		t.Fatal(err)
	}
	verify := func(text string, keys ...string) error {
		_, err := verifyRunFile(strings.NewReader(text), func(p *RunProof) (*Verified, error) {
			if strings.HasPrefix(text, string(header)) {
				return sound, nil
			}
			return p.Verify(keys...)
		})
		return err
	}
	for i := range c.text {
		for _, change := range []byte{1, 4, 0x20} {
			changed := []byte(c.text)
			changed[i] ^= change
			if err := verify(string(changed), c.keys...); err == nil {
				t.Fatalf("byte %d, %q made %q: believed", i, c.text[i], changed[i])
			}
		}
		for _, text := range []string{
			c.text[:i], c.text[:i] + c.text[i+1:], c.text[:i] + " " + c.text[i:], c.text[:i] + c.text[i:i+1] + c.text[i:],
			c.text[:i] + string(c.text[i]+1) + c.text[i+1:],
		} {
			if err := verify(text, c.keys...); err == nil {
				t.Fatalf("tampered with at byte %d: believed\n%s", i, text)
			}
		}
	}
	if err := verify(c.text+"\n", c.keys[0]); err == nil {
		t.Error("with a line more: believed")
	}
}

// TestTamperedLines: records that are missing, repeated, out of order, of another run or otherwise
// not those that were signed are found, and it is said where.
func TestTamperedLines(t *testing.T) {
	c, other := newTestCase(t, 3, 7), newTestCase(t, 1, 7)
	lines, others := strings.SplitAfter(c.text, "\n"), strings.SplitAfter(other.text, "\n")
	lines, others = lines[:len(lines)-1], others[:len(others)-1]
	join := func(parts ...[]string) string {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(strings.Join(p, ""))
		}
		return b.String()
	}
	wrong := func(what, text, says string) {
		t.Helper()
		err := verify(text, c.keys[0])
		if !errors.Is(err, ErrRunFile) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, which does not say %q", what, err, says)
		}
	}
	last := len(lines) - 1
	for i := range lines {
		switch i {
		case 0:
			wrong("no header", join(lines[1:]), "no proof of a run")
		case last:
			wrong("no end", join(lines[:i]), "cut off")
		case last - 1:
			wrong("the proof of inclusion is missing", join(lines[:i], lines[i+1:]), "no proof of their inclusion")
		case last - 2:
			wrong("the last record is missing", join(lines[:i], lines[i+1:]), "do not lead to the root")
			wrong("the last record and the proof are missing", join(lines[:i], lines[i+2:]), "inclusion")
		default:
			wrong("a record is missing", join(lines[:i], lines[i+1:]), fmt.Sprintf("the one before is %d", i-1))
		}
		wrong("a line twice", join(lines[:i+1], lines[i:]), "")
		if i == last-1 {
			continue
		}
		for j := i + 1; j < len(lines); j++ {
			swapped := append([]string(nil), lines...)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			wrong("two lines swapped", join(swapped), "")
		}
		if i > 0 && i < last-1 {
			wrong("a record of another run", join(lines[:i], others[i:i+1], lines[i+1:]), "a record of run")
		}
	}
	wrong("a record twice", join(lines[:3], lines[2:]), "repeated")
	wrong("the proof of another run's records", join(lines[:last-1], others[last-1:last], lines[last:]), "do not lead to the root")
	wrong("the end of another run's proof", join(lines[:last], others[last:]), "that of run \"run-1\"")
	wrong("the records of another run", join(lines[:1], others[1:last], lines[last:]), "a record of run")
	wrong("the records and header of another run", join(others[:last], lines[last:]), "the records are of")
	wrong("windows line ends", strings.ReplaceAll(c.text, "\n", "\r\n"), "not written as")
	wrong("nothing", "", "cut off")
	wrong("something else", "events\n", "no proof")
}

// TestTamperedFields: a record of which something was changed, and its chain digest with it, does
// not fit what was signed.
func TestTamperedFields(t *testing.T) {
	changes := map[string]func(r *Record){}
	for name, change := range contracttest.Changes() {
		changes[name] = func(r *Record) { change((*contract.Recorded)(r)) }
	}
	// No writer takes another run, and no proof has the others of a record.
	for _, name := range []string{"runId", "inherited", "payloadDigest", "recordDigest", "chainDigest"} {
		delete(changes, name)
	}
	maps.Copy(changes, map[string]func(r *Record){
		"runSeq":          func(r *Record) { r.RunSeq = 100 },
		"no appendedBy":   func(r *Record) { r.AppendedBy.Name = strings.Repeat("x", 1-min(1, len(r.AppendedBy.Name))) },
		"token or none":   func(r *Record) { r.AppendedBy.TokenID = strings.Repeat("x", 1-min(1, len(r.AppendedBy.TokenID))) },
		"no cause":        func(r *Record) { r.CausedBySignalID = "" },
		"original.source": func(r *Record) { r.Original = contract.Original{PersistedAt: 1, Source: "x"} },
		"no original": func(r *Record) {
			if r.Original.PersistedAt++; r.Original.PersistedAt != 1 {
				r.Original = contract.Original{}
			}
		},
		"another payload": func(r *Record) { r.Payload = []byte(`{"paid":true}`) },
	})
	for name, change := range changes {
		for _, i := range []int{0, 3, 6} {
			c := newTestCase(t, 3, 7)
			change(&c.records[i])
			if err := verify(c.write(t), c.keys[0]); !errors.Is(err, ErrRunFile) {
				t.Errorf("%s of record %d: %v", name, i+1, err)
			}
			// The head is made to fit too.
			c.proof.Head = testHead(c.proof.Head.RunID, c.records)
			if err := verify(c.write(t), c.keys[0]); !errors.Is(err, ErrRunFile) {
				t.Errorf("%s of record %d and the head: %v", name, i+1, err)
			}
		}
	}
}

// resign has a key sign the checkpoint of a proof, changed.
func resign(t *testing.T, s *Signer, p *RunProof, change func(c *Checkpoint)) {
	t.Helper()
	c, _, err := PeekCheckpoint(p.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	change(c)
	if p.Checkpoint, err = s.SignCheckpoint(c); err != nil {
		t.Fatal(err)
	}
}

// TestTamperedProof: leaf, index, path, checkpoint and keys are those that belong together, or it
// is said what is not.
func TestTamperedProof(t *testing.T) {
	foreign := [16]byte{9}
	stranger := testSigner(t, testCluster, 7)
	second := testSigner(t, testCluster, 2)
	for name, test := range map[string]struct {
		change func(p *RunProof)
		want   error
	}{
		"head":                {func(p *RunProof) { p.Head.TenantID = "other" }, ErrRunFile},
		"head created":        {func(p *RunProof) { p.Head.CreatedAt++ }, ErrRunFile},
		"index":               {func(p *RunProof) { p.Index = 2 }, ErrRunFile},
		"index beyond":        {func(p *RunProof) { p.Index = 5 }, ErrRunFile},
		"path":                {func(p *RunProof) { p.Path[1][0] ^= 1 }, ErrRunFile},
		"path short":          {func(p *RunProof) { p.Path = p.Path[1:] }, ErrRunFile},
		"path long":           {func(p *RunProof) { p.Path = append(p.Path, tlog.Hash{}) }, ErrRunFile},
		"other heads":         {func(p *RunProof) { resign(t, second, p, func(c *Checkpoint) { c.Heads[0] ^= 1 }) }, ErrRunFile},
		"fewer heads":         {func(p *RunProof) { resign(t, second, p, func(c *Checkpoint) { c.Runs = 4 }) }, ErrRunFile},
		"another root":        {func(p *RunProof) { resign(t, second, p, func(c *Checkpoint) { c.Root[0] ^= 1 }) }, ErrContradiction},
		"another size":        {func(p *RunProof) { resign(t, second, p, func(c *Checkpoint) { c.Size *= 3 }) }, ErrContradiction},
		"an earlier position": {func(p *RunProof) { resign(t, second, p, func(c *Checkpoint) { c.Position = 6 }) }, ErrContradiction},
		"an earlier time":     {func(p *RunProof) { resign(t, second, p, func(c *Checkpoint) { c.CompleteThrough = 1 }) }, ErrContradiction},
		"before the records":  {func(p *RunProof) { resign(t, second, p, func(c *Checkpoint) { c.Position = 7 }) }, ErrRunFile},
		"other hashes":        {func(p *RunProof) { p.Consistency[0][0] ^= 1 }, ErrContradiction},
		"hashes are missing":  {func(p *RunProof) { p.Consistency = p.Consistency[1:] }, ErrContradiction},
		"hashes too many":     {func(p *RunProof) { p.Consistency = append(p.Consistency, tlog.Hash{}) }, ErrContradiction},
		"no kept checkpoint":  {func(p *RunProof) { p.Since = "" }, ErrRunFile},
		"a stranger's kept":   {func(p *RunProof) { p.Since = strangersNote(t) }, ErrUnknownKey},
		"a forged checkpoint": {func(p *RunProof) { p.Checkpoint = strings.Replace(p.Checkpoint, "runs 5", "runs 6", 1) }, ErrSignature},
		"a stranger's":        {func(p *RunProof) { resign(t, stranger, p, func(*Checkpoint) {}) }, ErrUnknownKey},
		"of another cluster":  {func(p *RunProof) { resign(t, second, p, func(c *Checkpoint) { c.Cluster = foreign }) }, ErrUnknownKey},
		"another cluster's": {func(p *RunProof) {
			resign(t, testSigner(t, foreign, 2), p, func(c *Checkpoint) { c.Cluster = foreign })
		}, ErrUnknownKey},
		"not signed":          {func(p *RunProof) { p.Checkpoint = p.Checkpoint[:strings.Index(p.Checkpoint, "\n\n")+2] }, ErrUnsigned},
		"signed by the first": {func(p *RunProof) { resign(t, testSigner(t, testCluster, 1), p, func(*Checkpoint) {}) }, ErrRunFile},
		"signed twice":        {func(p *RunProof) { p.Checkpoint += p.Checkpoint[strings.Index(p.Checkpoint, "\n\n")+2:] }, ErrNote},
		"a statement":         {func(p *RunProof) { p.Checkpoint, _ = second.Sign((&Export{}).Statement()) }, ErrStatement},
		"no keys":             {func(p *RunProof) { p.Keys = nil }, ErrUnknownKey},
		"without the first":   {func(p *RunProof) { p.Keys = p.Keys[1:] }, ErrNote},
		"not endorsed":        {func(p *RunProof) { p.Keys[1].Endorsement = "" }, ErrNote},
		"endorsed by itself":  {func(p *RunProof) { p.Keys[1].Endorsement = endorse(t, second, 2, second.PublicKey()) }, ErrUnknownKey},
		"another is endorsed": {func(p *RunProof) {
			p.Keys[1].Endorsement = endorse(t, testSigner(t, testCluster, 1), 2, stranger.PublicKey())
		}, ErrUnknownKey},
		"endorsed by stranger": {func(p *RunProof) { p.Keys[1].Endorsement = endorse(t, stranger, 2, second.PublicKey()) }, ErrUnknownKey},
		"keys swapped":         {func(p *RunProof) { p.Keys[0], p.Keys[1] = p.Keys[1], p.Keys[0] }, ErrNote},
		"the first endorsed":   {func(p *RunProof) { p.Keys[0].Endorsement = p.Keys[1].Endorsement }, ErrNote},
	} {
		c := newTestCase(t, 3, 7)
		test.change(&c.proof)
		if err := verify(c.write(t), c.keys[0]); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	c := newTestCase(t, 3, 7)
	for _, trusted := range [][]string{nil, {stranger.PublicKey()}, {"key"}} {
		if err := verify(c.text, trusted...); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("who trusts %v: %v", trusted, err)
		}
	}
}

// strangersNote is a checkpoint that no key of the cluster has signed.
func strangersNote(t *testing.T) string {
	t.Helper()
	note, err := testSigner(t, testCluster, 7).SignCheckpoint(&Checkpoint{Cluster: testCluster})
	if err != nil {
		t.Fatal(err)
	}
	return note
}

func endorse(t *testing.T, by *Signer, number uint64, key string) string {
	t.Helper()
	note, err := by.Sign((&SigningKey{Cluster: testCluster, Number: number, PublicKey: key}).Statement())
	if err != nil {
		t.Fatal(err)
	}
	return note
}

// rotated adds a third key to a proof, endorsed under a number, and has it sign the checkpoint.
func rotated(t *testing.T, c *testCase, number uint64) {
	t.Helper()
	third := testSigner(t, testCluster, 3)
	c.proof.Keys = append(c.proof.Keys, Key{third.PublicKey(), endorse(t, testSigner(t, testCluster, 2), number, third.PublicKey())})
	resign(t, third, &c.proof, func(*Checkpoint) {})
}

// TestEndorsementNumbers: a key is endorsed as the one that follows, under the next number, and as
// no other.
func TestEndorsementNumbers(t *testing.T) {
	for third, want := range map[uint64]error{3: nil, 0: ErrUnknownKey, 2: ErrUnknownKey, 4: ErrUnknownKey} {
		c := newTestCase(t, 3, 7)
		rotated(t, c, third)
		if err := verify(c.write(t), c.keys[0]); !errors.Is(err, want) {
			t.Errorf("a third key endorsed as number %d: %v, want %v", third, err, want)
		}
	}
	for _, second := range []uint64{0, 1} {
		c := newTestCase(t, 3, 7)
		c.proof.Keys[1].Endorsement = endorse(t, testSigner(t, testCluster, 1), second, c.keys[1])
		if err := verify(c.write(t), c.keys[0]); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("a second key endorsed as number %d: %v", second, err)
		}
	}
}

// TestLineage: the keys that lead to one are those from which endorsements lead there without a
// gap.
func TestLineage(t *testing.T) {
	keys := []Key{{"a", ""}, {"b", "by a"}, {"c", ""}, {"d", "by c"}, {"e", "by d"}}
	for key, want := range map[string]string{"a": "[{a }]", "b": "[{a } {b by a}]", "c": "[{c }]", "e": "[{c } {d by c} {e by d}]", "x": "[]"} {
		if got := fmt.Sprint(Lineage(keys, key)); got != want {
			t.Errorf("to %s: %s, want %s", key, got, want)
		}
	}
}

// FuzzVerifyRunFile: whatever comes, it is refused or it is what the signer said; nothing breaks.
func FuzzVerifyRunFile(f *testing.F) {
	c := newTestCase(f, 3, 4)
	f.Add([]byte(c.text))
	f.Add([]byte(c.text[:len(c.text)/2]))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := VerifyRunFile(bytes.NewReader(text), c.keys[0]); (err == nil) != (string(text) == c.text) {
			t.Errorf("%v", err)
		}
	})
}

// FuzzParseCheckpoint: a checkpoint is written one way only.
func FuzzParseCheckpoint(f *testing.F) {
	f.Add((&Checkpoint{Size: 7, Runs: 3, CompleteThrough: 1_770_805_900_000_000_000}).Text())
	f.Add("runlog/00\n1\nAA==\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCheckpoint(text)
		if err == nil && c.Text() != text {
			t.Errorf("%q is read as %q", text, c.Text())
		}
		if err != nil && !errors.Is(err, ErrStatement) {
			t.Errorf("%v", err)
		}
	})
}

// TestVerifiedByOthers: a program that shares no code with this one comes to the same, of a proof
// and of what was changed.
func TestVerifiedByOthers(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	file := filepath.Join(t.TempDir(), "proof")
	run := func(text, key string) (string, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), python, "../../docs/verify_run.py", file, key).CombinedOutput()
		return string(out), err
	}
	for _, at := range []int{3, 4} {
		c := newTestCase(t, at, 7*(at%2))
		for _, key := range c.keys {
			if out, err := run(c.text, key); err != nil || !strings.Contains(out, fmt.Sprintf("up to runSeq %d", 7*(at%2))) {
				t.Errorf("%v: %s\n%s", err, out, c.text)
			}
		}
	}
	c := newTestCase(t, 3, 7)
	keyFile := filepath.Join(t.TempDir(), "cluster.pub")
	for text, good := range map[string]bool{c.keys[0] + "\n": true, `{"publicKey":"` + c.keys[0] + `"}` + "\n": true, "x\n": false, "": false} {
		if err := os.WriteFile(keyFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := run(c.text, keyFile); (err == nil) != good {
			t.Errorf("a key in a file, %q: %v: %s", text, err, out)
		}
	}
	lines := strings.SplitAfter(c.text, "\n")
	for name, text := range map[string]string{
		"a record": strings.Replace(c.text, "step-3", "step-4", 1), "a missing record": strings.Replace(c.text, lines[3], "", 1),
		"the leaf": strings.Replace(c.text, `"tenantId":"tenant","projectId":"project","environmentId":"prod","planId":"plan","planVersion":"v1","createdAt"`,
			`"tenantId":"other","projectId":"project","environmentId":"prod","planId":"plan","planVersion":"v1","createdAt"`, 1),
		"the checkpoint": strings.Replace(c.text, `runs 5`, `runs 6`, 1), "the index": strings.Replace(c.text, `"index":"3","path"`, `"index":"2","path"`, 1),
		"a place": strings.Replace(c.text, `"offset":"0"`, `"offset":"1"`, 1), "the inclusion": strings.Replace(c.text, `{"inclusion":["`, `{"inclusion":["AAAA`, 1),
		"the consistency": strings.Replace(c.text, `"consistency":["`, `"consistency":["AAAA`, 1), "no inclusion": strings.Replace(c.text, lines[len(lines)-3], "", 1),
		"the end": strings.Join(lines[:len(lines)-2], ""), "the endorsement": strings.Replace(c.text, "number 2", "number 3", 1),
	} {
		if out, err := run(text, c.keys[0]); err == nil || text == c.text {
			t.Errorf("%s: %s", name, out)
		}
	}
	for _, number := range []uint64{2, 3, 4} {
		c := newTestCase(t, 3, 7)
		rotated(t, c, number)
		if out, err := run(c.write(t), c.keys[0]); (err == nil) != (number == 3) {
			t.Errorf("a third key endorsed as number %d: %v: %s", number, err, out)
		}
	}
}
