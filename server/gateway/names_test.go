package gateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// Fields of requests that are names, and which values are refused as such a name in addition to "."
// and "..".
var nameFields = map[protoreflect.Name][]string{
	"run_id": nil, "tenant_id": {"*"}, "project_id": nil, "environment_id": nil, "plan_id": nil, "plan_version": nil,
	"step_id": {"RUN"}, "event_type": nil, "queue": nil, "subscription_id": nil, "types": nil, "tenants": nil,
}

// otherIDs are the ids that no route, filter or query takes as a name.
var otherIDs = []protoreflect.Name{
	"event_id", "parent_event_id", "caused_by_signal_id", "signal_id", "request_id", "run_request_id", "token_id", "node_id",
	"attestation_id",
}

// apiMethods returns the methods of the API.
func apiMethods() (all []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("runlog.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			for methods, j := file.Services().Get(i).Methods(), 0; j < methods.Len(); j++ {
				all = append(all, methods.Get(j))
			}
		}
		return true
	})
	slices.SortFunc(all, func(a, b protoreflect.MethodDescriptor) int { return strings.Compare(fullName(a), fullName(b)) })
	return all
}

func fullName(m protoreflect.MethodDescriptor) string {
	return fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
}

// route returns the HTTP method and the path of a method of the API; empty: it has no route.
func route(m protoreflect.MethodDescriptor) (method, path string) {
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	}
	return "", ""
}

// fieldsOf yields the fields of a message.
func fieldsOf(md protoreflect.MessageDescriptor) (all []protoreflect.FieldDescriptor) {
	for i := range md.Fields().Len() {
		all = append(all, md.Fields().Get(i))
	}
	return all
}

// oddNames are names that are accepted, and that a route could take for something else.
var oddNames = []string{
	"a/b", "/", "//a//", "../a", "a/..", "...", ".a", "a:watch", ":signal", "%2F", "%", "a?b=c&d#e", "a+b", "a b", "a=b,c", "*a", "{run_id}",
	"é\u2028\u200b", `"\`, "a;b", "RUN", strings.Repeat("/", 256), strings.Repeat("é", 128),
}

// oddScopes are names of tenants, projects and environments that no other name may have.
var oddScopes = []string{"a|b", " ", " a", "a\u2003", "|"}

// TestAcceptedNamesENV13: what has been accepted as a name of every kind is found by every route,
// and by every filter of it, that takes a name of the kind.
func TestAcceptedNamesENV13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for _, name := range oddNames {
			wantUsable(t, n, name, name)
		}
		for i, scope := range oddScopes {
			wantUsable(t, n, fmt.Sprint("run-", i), scope)
		}
	})
}

// wantUsable stores an event and makes what has settings with a name, and a name of scopes, and
// calls all routes with them.
func wantUsable(t *testing.T, n *servertest.Node, name, scope string) {
	t.Helper()
	n.Append(name, servertest.NewEvent(name, func(e *runlogv1.EventWrite) {
		e.TenantId, e.ProjectId, e.EnvironmentId, e.PlanId, e.PlanVersion, e.StepId = scope, scope, scope, name, name, stepOf(name)
	}))
	texts, _ := json.Marshal([]string{scope, name})
	var quoted []json.RawMessage
	_ = json.Unmarshal(texts, &quoted)
	scopes := fmt.Sprintf(`"tenantId":%s,"projectId":%[1]s,"environmentId":%[1]s`, quoted[0])
	keyed := !strings.Contains(scope, "|") // The key of a request to a queue (QUE-2).
	if keyed {
		n.HTTP("PUT", "/v1/queues", fmt.Sprintf(`{%s,"queue":%s,"settings":{}}`, scopes, quoted[1])).OK(t)
	}
	n.HTTP("POST", "/v1/subscriptions", fmt.Sprintf(`{"subscriptionId":"s","filter":{%s,"planId":%s,"types":[%[2]s]},"start":{"beginning":true},"delivery":{"pull":{}}}`,
		scopes, quoted[1])).OK(t)
	n.HTTP("POST", "/v1/tokens", fmt.Sprintf(`{"name":"%.30x","roles":["READER"],"tenants":[%s]}`, sha256.Sum256([]byte(scope)), quoted[0])).OK(t)
	n.HTTP("PUT", "/v1/tenants/"+url.PathEscape(scope)+"/limits", `{"limits":{"streams":"7"}}`).OK(t)
	for _, m := range apiMethods() {
		ofQueue := strings.Contains(string(m.Name()), "Queue")
		if method, _ := route(m); method == http.MethodGet && (keyed || !ofQueue) {
			wantFound(t, n, m, name, scope)
		}
	}
}

// stepOf is a name as a stepId.
func stepOf(name string) string {
	if name == "RUN" {
		return "run"
	}
	return name
}

// wantFound calls a route with a name wherever it takes one.
func wantFound(t *testing.T, n *servertest.Node, m protoreflect.MethodDescriptor, name, scope string) {
	t.Helper()
	_, path := route(m)
	query, named := url.Values{}, false
	for _, f := range fieldsOf(m.Input()) {
		value := name
		switch _, is := nameFields[f.Name()]; {
		case f.Name() == "subscription_id":
			value = "s"
		case f.Name() == "tenant_id", f.Name() == "project_id", f.Name() == "environment_id":
			value, named = scope, true
		case f.Name() == "step_id":
			value = stepOf(name)
		case f.Name() == "run_id_prefix", is:
			named = true
		case f.Name() == "view" && m.Input().Fields().ByName("types") != nil:
			value = "EVENT"
		default:
			continue
		}
		if at := "{" + string(f.Name()) + "}"; strings.Contains(path, at) {
			path = strings.ReplaceAll(path, at, url.PathEscape(value))
		} else {
			query.Set(f.JSONName(), value)
		}
	}
	if !named {
		return
	}
	target := path + "?" + query.Encode()
	ctx, cancel := context.WithCancel(n.Context())
	defer cancel()
	resp := n.HTTPStream(ctx, "GET", target, "")
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Errorf("%s with the name %q: %d %s", target, name, resp.StatusCode, text)
		return
	}
	if strings.Contains(path, ":watch") || nameless[m.Name()] {
		return
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil || !hasText(text, name) && !hasText(text, scope) {
		t.Errorf("%s with the name %q does not find it: %s %v", target, name, text, err)
	}
}

// nameless are the methods whose answers do not repeat the name.
var nameless = map[protoreflect.Name]bool{"GetTenantLimits": true, "VerifyRun": true, "ListQueuedRuns": true, "ListDeadLetters": true, "ProveRecords": true}

// hasText reports whether one of several JSON texts has a string.
func hasText(texts []byte, want string) bool {
	found := false
	for d := json.NewDecoder(bytes.NewReader(texts)); !found; {
		token, err := d.Token()
		if err != nil {
			return false
		}
		found = token == want
	}
	return true
}

// onlyFinds are the methods that make nothing of the name that they take: they find what has it, or
// nothing. What was named before ENV-13 stays within their reach.
var onlyFinds = map[protoreflect.Name]bool{
	"LeaseRuns": true, "PauseQueue": true, "ResumeQueue": true,
	"UpdateSubscription": true, "DeleteSubscription": true, "PauseSubscription": true, "ResumeSubscription": true, "SeekSubscription": true,
	"Consume": true, "Pull": true, "Ack": true, "Nack": true, "RedriveDeadLetters": true, "DiscardDeadLetters": true,
	"ProjectRun": true,
}

// TestRefusedNamesENV13: every write refuses a name that a route, a filter or a query cannot take,
// wherever in its request the name is. Reads do not look.
func TestRefusedNamesENV13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		checked := 0
		for _, m := range apiMethods() {
			if method, _ := route(m); method == http.MethodGet || onlyFinds[m.Name()] {
				continue
			}
			for _, at := range namesIn(m.Input(), nil) {
				last := at[len(at)-1]
				for _, value := range append([]string{".", ".."}, nameFields[last.Name()]...) {
					if value == "*" && m.Name() == "SetTenantLimits" {
						continue // The default of all tenants.
					}
					req := request(m.Input())
					path := put(req, at, value)
					err := call(n, m, req)
					if err == nil {
						t.Errorf("%s takes %s %q", m.FullName(), path, value)
						continue
					}
					// A violation of a batch has its path within its request, and an append takes
					// its runId for that of its events.
					told := func(field string) bool { return strings.HasSuffix(field, path[strings.LastIndex(path, ".")+1:]) }
					r := servertest.RefusalOf(t, err)
					if r.Reason != contract.ReasonInvalidArgumentField || !slices.ContainsFunc(slices.Collect(maps.Keys(r.Fields)), told) {
						t.Errorf("%s with %s %q: %v %q", m.FullName(), path, value, err, r.Fields)
					}
					checked++
				}
			}
		}
		if checked < 100 {
			t.Errorf("checked %d names", checked)
		}
		for _, run := range []string{".", ".."} {
			_, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: run})
			servertest.Refused(t, err, contract.ReasonRunNotFound)
		}
	})
}

// namesIn returns the paths to the names in a request, and fails for an id of which no list tells.
func namesIn(md protoreflect.MessageDescriptor, within []protoreflect.FieldDescriptor) (all [][]protoreflect.FieldDescriptor) {
	for _, f := range fieldsOf(md) {
		at := append(slices.Clone(within), f)
		_, name := nameFields[f.Name()]
		switch {
		case name:
			all = append(all, at)
		case f.Message() != nil && f.Message().ParentFile().Package() == "runlog.v1" && !f.IsMap():
			all = append(all, namesIn(f.Message(), at)...)
		case f.Kind() == protoreflect.StringKind && strings.HasSuffix(string(f.Name()), "_id") && !slices.Contains(otherIDs, f.Name()):
			panic("is " + string(f.FullName()) + " a name?")
		}
	}
	return all
}

// request makes a request of which every name can be accepted.
func request(md protoreflect.MessageDescriptor) protoreflect.Message {
	m := dynamicpb.NewMessage(md)
	if md.Name() == "EventWrite" {
		text, _ := proto.Marshal(servertest.NewEvent("StepStarted", servertest.Step("a")))
		_ = proto.Unmarshal(text, m)
		return m
	}
	for _, f := range fieldsOf(md) {
		_, name := nameFields[f.Name()]
		switch {
		case name && f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfString("x"))
		case name, f.Kind() == protoreflect.StringKind && slices.Contains(otherIDs, f.Name()):
			m.Set(f, protoreflect.ValueOfString("x"))
		case f.Message() == nil || f.IsMap() || f.Message().ParentFile().Package() != "runlog.v1" || f.ContainingOneof() != nil:
		case f.IsList():
			m.Mutable(f).List().Append(protoreflect.ValueOfMessage(request(f.Message())))
		default:
			m.Set(f, protoreflect.ValueOfMessage(request(f.Message())))
		}
	}
	return m
}

// put sets a name in a request, and returns its path as a violation names it.
func put(m protoreflect.Message, at []protoreflect.FieldDescriptor, value string) (path string) {
	for i, f := range at {
		last := i == len(at)-1
		switch {
		case last && f.IsList():
			m.Mutable(f).List().Set(0, protoreflect.ValueOfString(value))
		case last:
			m.Set(f, protoreflect.ValueOfString(value))
		case f.IsList():
			m = m.Mutable(f).List().Get(0).Message()
		default:
			m = m.Mutable(f).Message()
		}
		path += "." + f.JSONName()
		if f.IsList() && f.Name() != "types" {
			path += "[0]"
		}
	}
	return path[1:]
}

// call sends the only request of a call, and returns the error of its first answer.
func call(n *servertest.Node, m protoreflect.MethodDescriptor, req protoreflect.Message) error {
	ctx, cancel := context.WithCancel(n.Context())
	defer cancel()
	stream, err := n.Conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, fullName(m))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(req.Interface()); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	answer := dynamicpb.NewMessage(m.Output())
	if err := stream.RecvMsg(answer); err != nil {
		return err
	}
	return inAnswer(answer)
}

// inAnswer returns the error of a request that its answer has: of AppendStream, and of BatchAppend.
func inAnswer(answer protoreflect.Message) error {
	text, _ := proto.Marshal(answer.Interface())
	switch answer.Descriptor().Name() {
	case "AppendStreamResponse":
		m := &runlogv1.AppendStreamResponse{}
		_ = proto.Unmarshal(text, m)
		return statusError(m.Status)
	case "BatchAppendResponse":
		m := &runlogv1.BatchAppendResponse{}
		_ = proto.Unmarshal(text, m)
		return statusError(m.Outcomes[0].Status)
	}
	return nil
}

func statusError(s *spb.Status) error {
	if s == nil {
		return nil
	}
	return status.ErrorProto(s)
}

// TestEmptyFiltersENV13: an empty value of a parameter is refused, and so is an empty text of a
// filter in a body, and among the types or labels of a filter. None means "all".
func TestEmptyFiltersENV13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		checked := 0
		for _, m := range apiMethods() {
			method, path := route(m)
			for _, f := range fieldsOf(m.Input()) {
				if f.Kind() == protoreflect.StringKind && f.IsList() && (f.Name() == "types" || f.Name() == "labels") {
					req := request(m.Input())
					list := req.Mutable(f).List()
					list.Truncate(0)
					list.Append(protoreflect.ValueOfString(""))
					if view := m.Input().Fields().ByName("view"); view != nil {
						req.Set(view, protoreflect.ValueOfEnum(protoreflect.EnumNumber(runlogv1.WatchView_EVENT)))
					}
					if r := servertest.Refused(t, call(n, m, req), contract.ReasonInvalidArgumentField); r.Fields[f.JSONName()] == "" {
						t.Errorf("%s with an empty %s: %q", m.FullName(), f.Name(), r.Fields)
					}
				}
				if method != http.MethodGet && method != http.MethodDelete || strings.Contains(path, "{"+string(f.Name())+"}") ||
					strings.Contains(path, "{"+string(f.Name())+"=**}") {
					continue
				}
				if f.IsMap() || f.Message() != nil && !isTime(f) || strings.HasSuffix(string(f.Name()), "_token") {
					continue
				}
				target := strings.NewReplacer("{run_id}", "run", "{tenant_id}", "t", "{subscription_id}", "s").Replace(path)
				for _, query := range []string{f.JSONName() + "=", string(f.Name()) + "=", f.JSONName()} {
					if r := n.HTTP(method, target+"?"+query, "").Refused(t, contract.ReasonInvalidArgumentField); r.Fields[f.JSONName()] == "" {
						t.Errorf("%s %s?%s: %q", method, target, query, r.Fields)
					}
				}
				checked++
			}
		}
		if checked < 80 {
			t.Errorf("checked %d parameters", checked)
		}
		if a := n.HTTP("GET", "/v1/runs?pageToken=&types=", ""); a.Code != http.StatusBadRequest {
			t.Errorf("%s", a.Body)
		}
		n.HTTP("GET", "/v1/runs?pageToken=", "").OK(t)
		for body, field := range map[string]string{
			`{"worker":"w","tenantId":""}`:                      "tenantId",
			`{"worker":"w","tenantId":"t","project_id":""}`:     "projectId",
			`{"worker":"w","tenantId":"t","environmentId": ""}`: "environmentId",
			`{"worker":"w","tenantId":"t","queue":""}`:          "queue",
		} {
			if r := n.HTTP("POST", "/v1/queues:lease", body).Refused(t, contract.ReasonInvalidArgumentField); r.Fields[field] == "" {
				t.Errorf("%s: %q", body, r.Fields)
			}
		}
		for _, field := range []string{"tenantId", "projectId", "environmentId", "planId"} {
			filter := fmt.Sprintf(`"filter":{%q:""}`, field)
			for _, a := range []servertest.HTTPAnswer{
				n.HTTP("POST", "/v1/subscriptions", `{"subscriptionId":"s","start":{"now":true},"delivery":{"pull":{}},`+filter+"}"),
				n.HTTP("PATCH", "/v1/subscriptions/s", "{"+filter+"}"),
			} {
				if r := a.Refused(t, contract.ReasonInvalidArgumentField); !slices.Equal(slices.Collect(maps.Keys(r.Fields)), []string{"filter." + field}) {
					t.Errorf("%s: %q", filter, r.Fields)
				}
			}
		}
	})
}

func isTime(f protoreflect.FieldDescriptor) bool {
	return f.Message().FullName() == (&timestamppb.Timestamp{}).ProtoReflect().Descriptor().FullName()
}

// TestLabelsENV13: the name of a label can be written in the filter of a list.
func TestLabelsENV13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		create := func(run, label string) servertest.HTTPAnswer {
			quoted, _ := json.Marshal(label)
			return n.HTTP("POST", "/v1/runs", fmt.Sprintf(`{"run":{"runId":%q,"tenantId":"t","projectId":"p","environmentId":"e","planRef":{"planId":"l","planVersion":"1"},"labels":{%s:"=, v"}}}`, run, quoted))
		}
		for i, label := range []string{"team", "a/b:c", "%2C", "é", "a;b&c#d"} {
			run := fmt.Sprint("run-", i)
			create(run, label).OK(t)
			runs, _ := n.Get("/v1/runs?labels=" + url.QueryEscape(label+"==, v"))["runs"].([]any)
			if len(runs) != 1 || runs[0].(map[string]any)["runId"] != run {
				t.Errorf("label %q finds %v", label, runs)
			}
		}
		for _, label := range []string{"a=b", "=", "a,b", "a b", " a", "a\tb", "a\u00a0b", "a\u2028", ""} {
			refused := func(field string, a servertest.HTTPAnswer) {
				t.Helper()
				if r := a.Refused(t, contract.ReasonInvalidArgumentField); r.Fields[field] == "" {
					t.Errorf("label %q: %q", label, r.Fields)
				}
			}
			quoted, _ := json.Marshal(label)
			labels := fmt.Sprintf(`"labels":{%s:"v"}`, quoted)
			refused("run.labels", create("run", label))
			refused("labels", n.HTTP("PATCH", "/v1/runs/run-0", "{"+labels+"}"))
			refused("labels", n.HTTP("POST", "/v1/runs:request", `{"runRequestId":"r","tenantId":"t","projectId":"p","environmentId":"e","planRef":{"planId":"l","planVersion":"1"},`+labels+"}"))
			refused("filter.labels", n.HTTP("POST", "/v1/subscriptions", `{"subscriptionId":"s","filter":{"tenantId":"t",`+labels+`},"start":{"now":true},"delivery":{"pull":{}}}`))
		}
	})
}
