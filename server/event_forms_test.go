package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/parquet-go/parquet-go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"runlog/audit/export"
	"runlog/audit/proof"
	"runlog/client"
	"runlog/client/consumer"
	"runlog/proto/contract/contracttest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// form is an event as a form has it: what is in each field that is there, by its name in JSON, with
// a dot for a field of an object. Numbers are decimal, times are nanoseconds since 1970, and
// objects are their bytes. Nothing here knows the table of fields.
type form map[string]string

// formOf reads a message by its descriptor.
func formOf(m proto.Message) form {
	all := form{}
	all.message("", m.ProtoReflect())
	return all
}

func (f form) message(before string, m protoreflect.Message) {
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := before + strings.TrimSuffix(d.JSONName(), "Json")
		switch at := v.Interface().(type) {
		case protoreflect.Message:
			if stamp, ok := at.Interface().(*timestamppb.Timestamp); ok {
				f.set(name, fmt.Sprint(stamp.AsTime().UnixNano()))
			} else {
				f.message(name+".", at)
			}
		case protoreflect.List:
			var parts []string
			for i := range at.Len() {
				parts = append(parts, at.Get(i).String())
			}
			f.set(name, strings.Join(parts, " "))
		case []byte:
			f.set(name, string(at))
		default:
			f.set(name, fmt.Sprint(at))
		}
		return true
	})
}

func (f form) set(name, text string) {
	if text != "" {
		f[name] = text
	}
}

// nanoseconds reads a time as JSON and CSV have it.
func nanoseconds(t rapid.TB, text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprint(at.UnixNano())
}

// ofJSON reads an object of a line or an answer. payload and extensions keep their bytes.
func (f form) ofJSON(t rapid.TB, before string, text []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for name, value := range members {
		name := before + name
		var list []string
		var said string
		switch {
		case name == "payload" || name == "extensions":
			f.set(name, string(value))
		case value[0] == '{':
			f.ofJSON(t, name+".", value)
		case value[0] == '[' && json.Unmarshal(value, &list) == nil:
			f.set(name, strings.Join(list, " "))
		case value[0] != '"':
			f.set(name, string(value))
		case json.Unmarshal(value, &said) != nil:
			t.Errorf("%s is %s", name, value)
		case strings.HasSuffix(name, "Json"):
			object, err := base64.StdEncoding.DecodeString(said)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			f.set(strings.TrimSuffix(name, "Json"), string(object))
		case strings.HasSuffix(name, "At"):
			f.set(name, nanoseconds(t, said))
		default:
			f.set(name, said)
		}
	}
}

// same wants a form to have what the record has, but for the fields that it leaves out.
func (f form) same(t rapid.TB, what string, record form, without ...string) {
	t.Helper()
	want := form{}
	for name, text := range record {
		want[name] = text
	}
	for _, name := range without {
		delete(want, name)
	}
	for name, text := range want {
		if f[name] != text {
			t.Errorf("%s: %s is %q, want %q", what, name, f[name], text)
		}
	}
	for name, text := range f {
		if want[name] == "" {
			t.Errorf("%s has %s, %q, which the record has not", what, name, text)
		}
	}
}

// columnOf is the name of a column.
func columnOf(name string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(name, ".", "_") {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// recordNames has the name of each column: those of the fields of an EventRecord.
func recordNames() map[string]string {
	all := map[string]string{}
	var walk func(before string, fields protoreflect.FieldDescriptors)
	walk = func(before string, fields protoreflect.FieldDescriptors) {
		for i := range fields.Len() {
			f := fields.Get(i)
			name := before + strings.TrimSuffix(f.JSONName(), "Json")
			if m := f.Message(); m != nil && m.FullName() == "runlog.v1.Original" {
				walk(name+".", m.Fields())
			} else {
				all[columnOf(name)] = name
			}
		}
	}
	walk("", (&runlogv1.EventRecord{}).ProtoReflect().Descriptor().Fields())
	return all
}

// formsNode is a node with the clients of its tokens, and all that reads its events.
type formsNode struct {
	*servertest.Node
	t      rapid.TB // the check that is under way
	token  string
	client *client.Client
	names  map[string]string
}

func startForms(t testing.TB) *formsNode {
	var root string
	n := &formsNode{t: t, names: recordNames(), Node: servertest.Start(t, func(o *server.Options) {
		root = servertest.Secured(o)
	})}
	n.token = n.Token(root, "ci", []string{"*"}, runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_OPERATOR, runlogv1.Role_AUDITOR, runlogv1.Role_ADMIN)
	n.dial()
	t.Cleanup(func() { n.client.Close() })
	return n
}

func (n *formsNode) dial() {
	var err error
	n.client, err = client.Dial(n.Server.Addresses().GRPC, client.Options{Token: n.token, Insecure: true, DialOptions: []grpc.DialOption{n.Dialer()}})
	if err != nil {
		n.t.Fatal(err)
	}
}

// delivered returns the events of a run as a consumer of the client gets them.
func (n *formsNode) delivered(runID string, count int) (all []*runlogv1.EventRecord) {
	n.t.Helper()
	ctx := n.Bearing(n.token)
	if _, err := n.Subscriptions().CreateSubscription(ctx, &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: runID, Filter: &runlogv1.SubscriptionFilter{PlanId: planOf(runID)}, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
	}); err != nil {
		n.t.Fatal(err)
	}
	for d, err := range consumer.Deliveries(n.Context(), n.client, consumer.Options{Subscription: runID, Max: uint64(count)}) {
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, d.EventRecord)
		d.Ack()
	}
	if _, err := n.Subscriptions().DeleteSubscription(ctx, &runlogv1.DeleteSubscriptionRequest{SubscriptionId: runID}); err != nil {
		n.t.Fatal(err)
	}
	return all
}

// listed returns the events of a run as messages, each as a form too.
func (n *formsNode) listed(runID string) (all []*runlogv1.EventRecord, forms []form) {
	n.t.Helper()
	for r, err := range n.client.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: runID}) {
		if err != nil {
			n.t.Fatal(err)
		}
		all, forms = append(all, r), append(forms, formOf(r))
	}
	return all, forms
}

// check compares every form of a run's events, and returns their JSON lines.
func (n *formsNode) check(runID string) (lines []string) {
	n.t.Helper()
	records, want := n.listed(runID)
	if err := servertest.AuditRun(records); err != nil {
		n.t.Error(err)
	}
	for i, r := range n.delivered(runID, len(records)) {
		formOf(r).same(n.t, "a delivery", want[i])
	}
	var answer struct{ Events []json.RawMessage }
	if err := json.Unmarshal(n.HTTP("GET", servertest.RunPath(runID, "/events"), "", "Authorization", "Bearer "+n.token).Body, &answer); err != nil || len(answer.Events) != len(want) {
		n.t.Fatalf("%d events over HTTP: %v", len(answer.Events), err)
	}
	for i, text := range answer.Events {
		f := form{}
		f.ofJSON(n.t, "", text)
		f.same(n.t, "HTTP", want[i])
	}
	n.checkCSV(n.file(export.CSV, records), want)
	n.checkParquet(n.file(export.Parquet, records), want)
	lines = strings.Split(strings.TrimSuffix(string(n.file(export.JSONLines, records)), "\n"), "\n")
	for i, line := range lines {
		f := form{}
		f.ofJSON(n.t, "", []byte(line))
		f.same(n.t, "JSON lines", want[i])
	}
	n.checkProof(runID, records, want)
	return lines
}

// file returns an export.
func (n *formsNode) file(f export.Format, records []*runlogv1.EventRecord) []byte {
	n.t.Helper()
	var out bytes.Buffer
	w, err := export.NewWriter(f, &out)
	for i := 0; i < len(records) && err == nil; i++ {
		var r export.Record
		if err = r.Take(records[i]); err == nil {
			err = w.Write(&r)
		}
	}
	if err == nil {
		err = w.Close("")
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return out.Bytes()
}

func (n *formsNode) checkCSV(file []byte, want []form) {
	n.t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	if err != nil || len(rows) != 1+len(want) {
		n.t.Fatalf("%d rows: %v", len(rows), err)
	}
	for i, row := range rows[1:] {
		f := form{}
		for k, cell := range row {
			name := n.names[rows[0][k]]
			if strings.HasSuffix(name, "At") && cell != "" {
				cell = nanoseconds(n.t, cell)
			}
			f.set(name, cell)
		}
		f.same(n.t, "CSV", want[i])
	}
}

func (n *formsNode) checkParquet(data []byte, want []form) {
	n.t.Helper()
	file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		n.t.Fatal(err)
	}
	columns := file.Schema().Columns()
	var forms []form
	for _, group := range file.RowGroups() {
		rows := group.Rows()
		buf := make([]parquet.Row, 1)
		for {
			k, err := rows.ReadRows(buf)
			if k == 1 {
				f := form{}
				for _, v := range buf[0] {
					if name := n.names[columns[v.Column()][0]]; !v.IsNull() {
						f.set(name, strings.TrimPrefix(f[name]+" "+v.String(), " "))
					}
				}
				forms = append(forms, f)
			}
			if errors.Is(err, io.EOF) || err == nil && k == 0 {
				break
			}
			if err != nil {
				n.t.Fatal(err)
			}
		}
		rows.Close()
	}
	if len(forms) != len(want) {
		n.t.Fatalf("%d rows of Parquet", len(forms))
	}
	for i := range forms {
		forms[i].same(n.t, "Parquet", want[i])
	}
}

// checkProof compares the lines of a proof, which have what digests are made of and no more.
func (n *formsNode) checkProof(runID string, records []*runlogv1.EventRecord, want []form) {
	n.t.Helper()
	var out bytes.Buffer
	// The places are not those of a tree: the lines matter here.
	tree := &proof.Checkpoint{Position: 1, CompleteThrough: math.MaxInt64}
	w, err := proof.NewRunWriter(&out, &proof.RunProof{Head: proof.RunHead{RunID: runID}}, tree)
	for i := 0; i < len(records) && err == nil; i++ {
		var r proof.Record
		if r, err = proof.RecordOf(records[i]); err == nil {
			err = w.Add(&r, proof.Place{Index: int64(i), Position: 1, Offset: uint32(i)})
		}
	}
	if err != nil {
		n.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")[1:]
	if len(lines) != len(want) {
		n.t.Fatalf("%d lines of a proof", len(lines))
	}
	for i, line := range lines {
		f := form{}
		f.ofJSON(n.t, "", []byte(line))
		for _, place := range []string{"index", "position", "offset"} {
			delete(f, place)
		}
		without := append(strings.Fields(want[i]["inherited"]), "inherited", "payloadDigest", "recordDigest")
		f.same(n.t, "a proof", want[i], without...)
	}
}

// planOf is the plan of a run and of no other, which a subscription can name.
func planOf(runID string) string { return "plan of " + runID }

// drawWritten draws an event of a run that a node takes: whatever its fields may have. A sparse one
// inherits fields of the first event.
func drawWritten(t *rapid.T, runID string, i int, sparse bool) *runlogv1.EventWrite {
	texts := rapid.StringOfN(rapid.RuneFrom([]rune("ab 1,;\"'\\/<&>#=\u00e9\u2028\u65e5\U0001f600")), 0, 12, -1)
	objects := rapid.Custom(func(t *rapid.T) []byte {
		quoted, _ := json.Marshal(texts.Draw(t, "text"))
		// No \r\n: encoding/csv makes \n of it.
		space := rapid.SampledFrom([]string{"", " ", "\n"}).Draw(t, "space")
		return fmt.Appendf(nil, "{ \"n\": 1.50,%s\"a\":%s,\"a\":[12345678901234567890]}", space, quoted)
	})
	e := &runlogv1.EventWrite{}
	contracttest.DrawMessage(t, e, texts, objects)
	e.RunId, e.EventType, e.EventId = runID, "Noted", fmt.Sprintf("0190b5a4-3c2e-7d11-8a4%d-%012d", i, rapid.IntRange(0, 1e12-1).Draw(t, "id"))
	e.TenantId, e.ProjectId, e.EnvironmentId, e.PlanId, e.PlanVersion = "tenant", "project", "prod", planOf(runID), "1"
	e.StepId = strings.TrimSpace(e.StepId) // a name has no space around it
	e.LogicalAttemptId, e.EngineAttemptId = uint32(i+1), max(1, e.EngineAttemptId)
	e.EmittedAt = timestamppb.New(time.Unix(0, rapid.Int64Min(math.MinInt64+2e9).Draw(t, "emitted")))
	e.IdempotencyKey, e.ContractVersion = "", rapid.SampledFrom([]string{"", "2.0.0", "1.1"}).Draw(t, "line")
	if sparse {
		e.ContractVersion, e.ProjectId, e.PlanVersion = "1.1", "", ""
	}
	if e.ContractVersion == "1.1" {
		e.IdempotencyKey = fmt.Sprintf("key %d", i)
	}
	return e
}

// TestFormsOfEventsAPP11: an event is the same in every form: as it was written, as the store has
// it after a restart, on the wire, at a consumer of the client, over HTTP, in a CSV, a Parquet and
// a JSON lines file, in a proof, and at another authority that has imported its line. Programs
// other than runlog's read the files.
func TestFormsOfEventsAPP11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, other := startForms(t), startForms(t)
		seen := form{}
		stored := map[string][]form{}
		runs := 0
		// A bubble has no deadline to ask for, which a TB has not.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			n.t, other.t = rt, rt
			runs++
			runID := fmt.Sprint("run-", runs)
			var written []*runlogv1.EventWrite
			for i := range rapid.IntRange(1, 4).Draw(rt, "events") {
				written = append(written, drawWritten(rt, runID, i, i > 0 && rapid.Bool().Draw(rt, "sparse")))
			}
			if runs == 1 { // However few runs are drawn, one has an event that inherits.
				written = append(written, drawWritten(rt, runID, len(written), true))
			}
			if _, err := n.client.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: written}); err != nil {
				rt.Fatal(err)
			}
			lines := n.check(runID)
			_, stored[runID] = n.listed(runID)
			for i, e := range written {
				for name, text := range formOf(e) {
					if got := stored[runID][i][name]; got != text {
						rt.Errorf("%s was written as %q, and is %q", name, text, got)
					}
				}
			}
			if answer := other.ImportsAs(other.token, lines...); answer.Code != 200 {
				rt.Fatalf("%d: %s", answer.Code, answer.Body)
			}
			other.check(runID)
			_, imported := other.listed(runID)
			for i, f := range imported {
				want := form{"original.persistedAt": stored[runID][i]["persistedAt"], "original.source": stored[runID][i]["appendedBy"]}
				for name, text := range stored[runID][i] {
					want.set(name, text)
				}
				for _, name := range []string{"persistedAt", "payloadSalt", "payloadDigest", "recordDigest", "chainDigest", "appendedBy", "appendedByTokenId"} {
					want[name] = f[name] // the importing authority's own
				}
				f.same(rt, "an import", want)
				for name := range f {
					seen[name] = name
				}
			}
		})
		for _, name := range n.names {
			if seen[name] == "" {
				t.Errorf("no event had %s: the test proves nothing of it", name)
			}
		}
		n.t = t
		n.client.Close()
		n.Restart()
		n.dial()
		for runID, want := range stored {
			_, got := n.listed(runID)
			for i := range got {
				got[i].same(t, "after a restart", want[i])
			}
		}
	})
}
