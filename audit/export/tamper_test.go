package export

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"runlog/audit/proof"
	"runlog/proto/contract"
	"runlog/proto/contract/contracttest"
	"runlog/storage/storagetest"
)

// evidence are records of each kind: of two runs, sparse, imported, and with a payload of several
// lines.
func evidence() []*Record {
	records := typical(204)
	records = slices.DeleteFunc(records, func(r *Record) bool {
		return r.RunID != records[0].RunID && r.RunID != records[1].RunID
	})
	records = append(records, clone(records[4]), clone(records[5]))
	sparse, imported := records[6], records[7]
	sparse.RunSeq, sparse.Contract, sparse.Absent = 4, contract.Line11, contract.AbsentTenant|contract.AbsentPlan
	sparse.CausedBySignalID, sparse.ParentEventID = "signal", "parent"
	imported.RunSeq, imported.Original = 4, contract.Original{PersistedAt: imported.PersistedAt - 1e9, Source: "there, \"1\""}
	sparse.AppendedBy.Name, imported.AppendedBy = "worker", contract.Author{Name: `other, "1"`, TokenID: `7, "8"`}
	imported.Payload = []byte("{\n  \"a\": 1\r\n}")
	sparse.Extensions, imported.Extensions = []byte(`{ "x":1.10 }`), []byte("{\n}")
	chains := map[string]*contract.Digest{}
	for _, r := range records {
		if chains[r.RunID] == nil {
			chains[r.RunID] = new(contract.Digest)
		}
		seal(r, chains[r.RunID])
	}
	return records
}

func clone(r *Record) *Record {
	c := *r
	c.Payload = bytes.Clone(r.Payload)
	return &c
}

func cloned(records []*Record) (out []*Record) {
	for _, r := range records {
		out = append(out, clone(r))
	}
	return out
}

// withManifestOf writes records and the manifest of others.
func withManifestOf(t *testing.T, f Format, records []*Record, manifest string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(f, &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(manifest); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// found wants the faults of a file, one of which tells what.
func found(t *testing.T, what string, report *Report, want ...string) {
	t.Helper()
	if len(report.Faults) == 0 {
		t.Errorf("%s: not found", what)
		return
	}
	if !slices.ContainsFunc(report.Faults, func(fault string) bool {
		return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(fault, w) })
	}) {
		t.Errorf("%s: told as %q, want %q in one", what, report.Faults, want)
	}
}

// TestOneFault: in a file of many pieces, one changed event is one fault, where it is, and none is
// told of others.
func TestOneFault(t *testing.T) {
	records := typical(4000)
	manifest := manifestOf(t, signer(t, 1), records)
	records[700].Payload = append([]byte("{ "), records[700].Payload[1:]...)
	for _, f := range allFormats {
		report := verified(t, f, withManifestOf(t, f, records, manifest))
		if found(t, f.String(), report, " 701 ", "payloadDigest"); len(report.Faults) != 1 || report.Events != 4000 {
			t.Errorf("%v: %d events, %q", f, report.Events, report.Faults)
		}
	}
}

// changes are one for each field of a record, and others.
var changes = func() map[string]func(*Record) {
	all := map[string]func(*Record){}
	for name, change := range contracttest.Changes() {
		all[name] = func(r *Record) { change((*contract.Recorded)(r)) }
	}
	maps.Copy(all, map[string]func(*Record){
		"no stepId": func(r *Record) { r.StepID = "" },
		"original.source": func(r *Record) {
			if r.Original.PersistedAt == 0 {
				r.Original.PersistedAt = 1
			}
			r.Original.Source += "x"
		},
		"no original": func(r *Record) {
			if r.Original.PersistedAt == 0 {
				r.Original.PersistedAt = 1
			} else {
				r.Original = contract.Original{}
			}
		},
		"token or none":    func(r *Record) { r.AppendedBy.TokenID = strings.Repeat("x", 1-min(1, len(r.AppendedBy.TokenID))) },
		"other extensions": func(r *Record) { r.Extensions = []byte(`{"another":1}`) },
		"no extensions":    func(r *Record) { r.Extensions = []byte(strings.Repeat("{}", 1-min(1, len(r.Extensions)))) },
		"another payload":  func(r *Record) { r.Payload[len(r.Payload)-2]++ },
		"payload's blanks": func(r *Record) { r.Payload = append([]byte("{ "), r.Payload[1:]...) },
	})
	return all
}()

// inheritedPlan tells of a change of what an event inherited of its run's plan: no record's own
// digest covers it, that of the window does.
func inheritedPlan(name string, r *Record) bool {
	return name == "planId" && r.Absent&contract.AbsentPlan != 0 || name == "planVersion" && r.Absent&contract.AbsentPlanVersion != 0
}

// TestTamperedFields: any change of any field of any record is found, and where. So is one that has
// had its digests made to fit, and then its whole chain.
func TestTamperedFields(t *testing.T) {
	storagetest.Large(t)
	original := evidence()
	manifest, key := manifestOf(t, signer(t, 1), original), signer(t, 1).PublicKey()
	for _, f := range allFormats {
		if report := verified(t, f, withManifestOf(t, f, original, manifest), key); len(report.Faults) > 0 || report.Links != uint64(len(original)) {
			t.Fatalf("%v: %+v", f, report)
		}
		unit := map[Format]string{JSONLines: "line", CSV: "row", Parquet: "row"}[f]
		for name, change := range changes {
			for i := range original {
				what := fmt.Sprintf("%v, %s of record %d", f, name, i+1)
				records := cloned(original)
				change(records[i])
				report := verified(t, f, withManifestOf(t, f, records, manifest), key)
				// where nothing follows, only the digest over all tells
				if name == "runSeq" || inheritedPlan(name, original[i]) {
					found(t, what, report)
					continue
				}
				at := fmt.Sprintf("%s %d ", unit, i+1)
				if name == "runId" || name == "chainDigest" {
					at = unit + " " // a chain may break where it is told at the next record
				}
				found(t, what, report, at)

				r := records[i]
				r.PayloadDigest, r.RecordDigest = r.Digests(r.PayloadSalt, r.AppendedBy, r.Original)
				if name != "payloadDigest" && name != "recordDigest" {
					found(t, what+", digests made to fit", verified(t, f, withManifestOf(t, f, records, manifest), key))
				}
				if reseal(records); !reflect.DeepEqual(deref(records), deref(original)) {
					found(t, what+", chain made to fit", verified(t, f, withManifestOf(t, f, records, manifest), key))
				}
			}
		}
	}
}

// reseal makes all digests fit.
func reseal(records []*Record) {
	chains := map[string]*contract.Digest{}
	for _, r := range records {
		if chains[r.RunID] == nil {
			chains[r.RunID] = new(contract.Digest)
		}
		seal(r, chains[r.RunID])
	}
}

// TestTamperedOrder: records that are missing, repeated, in another order or of another export are
// found.
func TestTamperedOrder(t *testing.T) {
	storagetest.Large(t)
	original := evidence()
	manifest, key := manifestOf(t, signer(t, 1), original), signer(t, 1).PublicKey()
	for _, f := range allFormats {
		check := func(what string, records []*Record, want ...string) {
			t.Helper()
			found(t, fmt.Sprintf("%v, %s", f, what), verified(t, f, withManifestOf(t, f, records, manifest), key), want...)
		}
		for i := range original {
			check(fmt.Sprint("without ", i), slices.Delete(cloned(original), i, i+1))
			check(fmt.Sprint("twice ", i), slices.Insert(cloned(original), i, clone(original[i])), fmt.Sprint(" ", i+2, " "), "comes behind runSeq")
			for j := range i {
				swapped := cloned(original)
				swapped[i], swapped[j] = swapped[j], swapped[i]
				check(fmt.Sprintf("%d and %d swapped", i, j), swapped)
				if original[i].PersistedAt != original[j].PersistedAt {
					check(fmt.Sprintf("%d and %d swapped, seen by their stamps", i, j), swapped, "the order was changed")
				}
				if bytes.Equal(original[i].Payload, original[j].Payload) {
					continue
				}
				payloads := cloned(original)
				payloads[i].Payload, payloads[j].Payload = payloads[j].Payload, payloads[i].Payload
				check(fmt.Sprintf("payloads of %d and %d swapped", i, j), payloads, fmt.Sprint(" ", j+1, " "), "payloadDigest")
			}
		}
		check("nothing", nil, "0 events", fmt.Sprint(len(original)))
	}
}

// TestTamperedManifest: any change of the manifest is found with the key that signed it, and the
// manifest of another window, or by another key.
func TestTamperedManifest(t *testing.T) {
	storagetest.Large(t)
	records := evidence()
	filter := func(e *proof.Export) {
		e.TenantID, e.Types = "", []string{contract.StepCompleted}
		e.ProjectID = "proj_marketing"
	}
	manifest, key := manifestOf(t, signer(t, 1), records, filter), signer(t, 1).PublicKey()
	lines := strings.SplitAfter(strings.TrimSuffix(manifest, "\n"), "\n")
	for _, f := range allFormats {
		check := func(what, manifest string, want ...string) {
			t.Helper()
			found(t, fmt.Sprintf("%v, %s", f, what), verified(t, f, withManifestOf(t, f, records, manifest), key), want...)
		}
		if report := verified(t, f, withManifestOf(t, f, records, manifest), key); len(report.Faults) > 0 {
			t.Fatalf("%v: %+v", f, report)
		}
		for i, line := range lines {
			check("without "+line, strings.Join(slices.Delete(slices.Clone(lines), i, i+1), ""))
			if line != "\n" && !strings.HasPrefix(line, "—") {
				check("twice "+line, strings.Join(slices.Insert(slices.Clone(lines), i, line), ""))
			}
			for k := range []byte(strings.TrimSuffix(line, "\n")) {
				changed := []byte(line)
				changed[k] ^= 1
				with := slices.Clone(lines)
				with[i] = string(changed)
				check(fmt.Sprintf("byte %d of %s", k, line), strings.Join(with, "")+"\n")
			}
		}
		check("a line more", strings.Replace(manifest, "position", "colour blue\nposition", 1), "colour")
		check("a shorter window", manifestOf(t, signer(t, 1), records, func(e *proof.Export) { e.To-- }), "outside of the window")
		check("a later window", manifestOf(t, signer(t, 1), records, func(e *proof.Export) { e.From++ }), "outside of the window")
		check("another tenant", manifestOf(t, signer(t, 1), records, func(e *proof.Export) { e.TenantID = "x" }), "tenantId")
		check("another type", manifestOf(t, signer(t, 1), records, func(e *proof.Export) { e.Types = []string{"x"} }), "eventType")
		check("of fewer", manifestOf(t, signer(t, 1), records[:3]))
		check("another digest", manifestOf(t, signer(t, 1), records, func(e *proof.Export) { e.Digest[0]++ }), "the digest of the events")
		check("another key", manifestOf(t, signer(t, 2), records), "not signed by a key that was named, but by runlog/")
		check("not signed", proof.Unsigned(statement(t, manifest)), "not signed")
		check("a checkpoint", "runlog checkpoint 1\n\n", "runlog checkpoint 1")
		check("no note", "x", "not a note")
	}
}

func statement(t *testing.T, note string) *proof.Statement {
	t.Helper()
	st, _, err := proof.Peek(note)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestTamperedBytes: a file that is cut at any byte is found, and one that has more behind its end;
// and whatever byte is changed, it is found, or what is read is what was written.
func TestTamperedBytes(t *testing.T) {
	storagetest.Large(t)
	original := evidence()
	for _, f := range allFormats {
		file := exported(t, f, original)
		for n := range file {
			found(t, fmt.Sprintf("%v, cut at %d of %d", f, n, len(file)), verified(t, f, file[:n]))
		}
		for _, more := range []string{"\n", " ", "x", "\x00", "PAR1", "# more\n", "{}\n", string(file)} {
			found(t, fmt.Sprintf("%v, more by %.20q", f, more), verified(t, f, append(slices.Clone(file), more...)))
			found(t, fmt.Sprintf("%v, begun with %.20q", f, more), verified(t, f, append([]byte(more), file...)))
		}
		// primes: all bits of all kinds of bytes
		step := map[Format]int{JSONLines: 11, CSV: 11, Parquet: 7}[f]
		for n := 0; n < len(file); n += step {
			changed := slices.Clone(file)
			changed[n] ^= 1 << (n % 8)
			report := verified(t, f, changed, signer(t, 1).PublicKey())
			if len(report.Faults) > 0 {
				continue
			}
			got, _, err := readAll(f, changed)
			if err != nil || !slices.EqualFunc(got, original, sameButPlan) {
				t.Errorf("%v: byte %d (%q) was changed and verifies: %v", f, n, file[max(0, n-20):min(len(file), n+20)], err)
			}
		}
	}
}

// sameButPlan compares all that digests cover.
func sameButPlan(a, b *Record) bool {
	a, b = clone(a), clone(b)
	for _, r := range []*Record{a, b} {
		if r.Absent&contract.AbsentPlan != 0 {
			r.PlanID = ""
		}
	}
	return reflect.DeepEqual(a, b)
}

// TestUnknownParts: a member, a column or a row of a shape that exports do not have is refused with
// the reason.
func TestUnknownParts(t *testing.T) {
	records := evidence()
	text, table := string(exported(t, JSONLines, records)), string(exported(t, CSV, records))
	replace := func(s, from, to string) string {
		t.Helper()
		if !strings.Contains(s, from) {
			t.Fatalf("no %q", from)
		}
		return strings.Replace(s, from, to, 1)
	}
	for what, c := range map[string]struct {
		f          Format
		file, want string
	}{
		"a member more":          {JSONLines, replace(text, `,"runSeq":`, `,"colour":"blue","runSeq":`), `line 1 has a member "colour"`},
		"a member twice":         {JSONLines, replace(text, `,"runSeq":"1"`, `,"runSeq":"1","runSeq":"1"`), "line 1 runSeq is given twice"},
		"a member less":          {JSONLines, replace(text, `"runSeq":"1",`, ``), "line 1 runSeq is missing"},
		"two payloads":           {JSONLines, replace(text, `,"payload":{`, `,"payloadJson":"e30=","payload":{`), "payload and payloadJson"},
		"a blank":                {JSONLines, replace(text, `,"runSeq"`, `, "runSeq"`), "line 1 has no member's name at byte"},
		"a number for text":      {JSONLines, replace(text, `"runSeq":"1"`, `"runSeq":1`), "runSeq is not a whole number"},
		"no salt":                {JSONLines, replace(text, `"payloadSalt":"`+records[0].PayloadSalt.String()+`",`, ""), "line 1 payloadSalt is missing"},
		"a long salt":            {JSONLines, replace(text, `"payloadSalt":"`, `"payloadSalt":"0`), "payloadSalt is not 32 lower-case"},
		"an offset":              {JSONLines, replace(text, `Z","payloadSalt`, `+00:00","payloadSalt`), "persistedAt is not a time"},
		"an empty line":          {JSONLines, replace(text, "\n", "\n\n"), "line 2 is not a JSON object"},
		"another manifest first": {JSONLines, text[strings.LastIndex(text, manifestMember):] + text, "line 1 has a manifest"},
		"a manifest and more":    {JSONLines, replace(text, manifestMember, `{"colour":1,"manifest":`), "no manifest"},
		"a manifest and less":    {JSONLines, text[:len(text)-2] + ",\"x\":1}\n", "no manifest"},
		"a manifest spelt anew":  {JSONLines, replace(text, `"runlog export 1\n`, `"\u0072unlog export 1\n`), "no manifest"},
		"a column more":          {CSV, replace(table, ",payload\n", ",payload,colour\n"), "it has more than the 30 columns"},
		"a column renamed":       {CSV, replace(table, ",run_seq,", ",seq,"), `column 18 is not called "run_seq"`},
		"a cell more":            {CSV, replace(table, ",2.0.0,", ",2.0.0,x,"), "row 1 run_seq is not"},
		"a cell less":            {CSV, replace(table, ",2.0.0,", ","), "row 1 contract_version is not"},
		"a comment":              {CSV, replace(table, "\n", "\n# so\n"), "row 1 event_id is not"},
		"a manifest before":      {CSV, replace(table, "\n", "\n"+table[strings.LastIndex(table, manifestComment):]), "row 1 has a quote within a cell"},
	} {
		found(t, what, verified(t, c.f, []byte(c.file)), c.want)
	}
}
