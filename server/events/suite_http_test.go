package events_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/storage/storagetest/stories"
)

// TestConformanceOverHTTP holds a node to the contract's examples and to the model, over HTTP and
// over its restarts: APP-1, APP-3 to APP-6, APP-11, APP-12, IDM-4 to IDM-8, ENV-1, ENV-8, READ-1.
// Appends go one by one and in batches, payloads as objects and, on 2.x events, as bytes.
func TestConformanceOverHTTP(t *testing.T) {
	t.Parallel()
	t.Run("examples", func(t *testing.T) {
		t.Parallel()
		stories.TellRemote(t, opening(overHTTP))
	})
	t.Run("workloads", func(t *testing.T) {
		t.Parallel()
		storagetest.RemoteWorkloads(t, opening(overHTTP))
	})
}

type httpWire struct{ node *servertest.Node }

func overHTTP(n *servertest.Node) transport { return httpWire{n} }

// httpCall is where a request goes; a call without a body is a GET.
type httpCall struct {
	target string
	body   proto.Message
}

// route writes requests as clients do: what the path names is not in the body again.
func route(req proto.Message) httpCall {
	switch req := req.(type) {
	case *runlogv1.CreateRunRequest:
		return httpCall{"/v1/runs", req}
	case *runlogv1.GetRunRequest:
		return httpCall{servertest.RunPath(req.RunId, ""), nil}
	case *runlogv1.SetEngineRunRefRequest:
		return httpCall{servertest.RunPath(req.RunId, ":setEngineRunRef"), &runlogv1.SetEngineRunRefRequest{EngineRunRef: req.EngineRunRef}}
	case *runlogv1.UpdateRunRequest:
		rest := proto.CloneOf(req)
		rest.RunId = ""
		return httpCall{servertest.RunPath(req.RunId, ""), rest}
	case *runlogv1.AppendEventsRequest:
		return httpCall{servertest.RunPath(req.RunId, "/events:append"),
			&runlogv1.AppendEventsRequest{Events: req.Events, ExpectedLastSeq: req.ExpectedLastSeq, Fence: req.Fence}}
	case *runlogv1.BatchAppendRequest:
		return httpCall{"/v1/events:batchAppend", req}
	case *runlogv1.ListEventsRequest:
		return httpCall{servertest.RunPath(req.RunId, "/events?") + query("afterSeq", req.AfterSeq, "pageSize", req.PageSize, "payloadForm", req.PayloadForm), nil}
	case *runlogv1.ReadEventsRequest:
		return httpCall{servertest.RunPath(req.RunId, "/events:read?") + query("afterSeq", req.AfterSeq, "payloadForm", req.PayloadForm), nil}
	default:
		panic(fmt.Sprintf("no route for %T", req))
	}
}

func query(pairs ...any) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i].(string), fmt.Sprint(pairs[i+1]))
	}
	return values.Encode()
}

// send returns the body of an answer, or the error that it tells.
func (h httpWire) send(req proto.Message) ([]byte, error) {
	call, method, body := route(req), http.MethodGet, []byte(nil)
	if call.body != nil {
		var err error
		if method, body, err = jsonOf(call.body); err != nil {
			return nil, err
		}
	}
	if _, update := req.(*runlogv1.UpdateRunRequest); update {
		method = http.MethodPatch
	}
	answer := h.node.HTTP(method, call.target, string(body))
	if answer.Code == http.StatusOK {
		return answer.Body, nil
	}
	var told spb.Status
	if err := protojson.Unmarshal(answer.Body, &told); err != nil {
		return nil, fmt.Errorf("HTTP %d: %s: %w", answer.Code, answer.Body, err)
	}
	err := status.ErrorProto(&told)
	if r := servertest.RefusalOf(h.node.T, err); answer.Code != r.Reason.Info().HTTP {
		return nil, fmt.Errorf("HTTP %d for %s", answer.Code, answer.Body)
	}
	return nil, err
}

// jsonOf writes every second payload and all extensions as objects, the others in base64.
func jsonOf(m proto.Message) (method string, body []byte, err error) {
	if body, err = protojson.Marshal(m); err != nil {
		return "", nil, err
	}
	n := 0
	body = encodedObject.ReplaceAllFunc(body, func(match []byte) []byte {
		part := encodedObject.FindSubmatch(match)
		if n++; string(part[1]) == "payload" && n%2 == 0 {
			return match
		}
		text, err := base64.StdEncoding.AppendDecode(nil, part[2])
		if err != nil {
			panic(err)
		}
		return append([]byte(`"`+string(part[1])+`":`), text...)
	})
	return http.MethodPost, body, nil
}

var encodedObject = regexp.MustCompile(`"(payload|extensions)Json": *"([A-Za-z0-9+/=]+)"`)

// encodeObjects writes the payloads and extensions of an answer in base64, so that a message takes
// their bytes.
func encodeObjects(value []byte) []byte {
	open, between := byte('{'), []byte{}
	var out []byte
	switch value[0] {
	case '{':
		c := jsontext.Members(value)
		for name, member, ok := c.Quoted(); ok; name, member, ok = c.Quoted() {
			out, between = append(out, between...), []byte{','}
			if text := jsontext.Text(name); (text == "payload" || text == "extensions") && member[0] == '{' {
				out = fmt.Appendf(out, `"%sJson":"%s"`, text, base64.StdEncoding.EncodeToString(member))
				continue
			}
			out = append(append(append(out, name...), ':'), encodeObjects(member)...)
		}
	case '[':
		open = '['
		e := jsontext.Elements(value)
		for element, ok := e.Element(); ok; element, ok = e.Element() {
			out, between = append(out, between...), []byte{','}
			out = append(out, encodeObjects(element)...)
		}
	default:
		return value
	}
	return append(append([]byte{open}, out...), open+2)
}

func (h httpWire) call(_ context.Context, _ string, req, resp proto.Message) error {
	body, err := h.send(req)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(encodeObjects(body), resp)
}

// read takes the lines of a stream, each of which has a result.
func (h httpWire) read(_ context.Context, req *runlogv1.ReadEventsRequest) ([]*runlogv1.EventRecord, error) {
	body, err := h.send(req)
	if err != nil {
		return nil, err
	}
	var events []*runlogv1.EventRecord
	for line := range bytes.Lines(body) {
		var chunk struct{ Result, Error json.RawMessage }
		var batch runlogv1.ReadEventsResponse
		if err := json.Unmarshal(line, &chunk); err != nil || chunk.Error != nil {
			return nil, fmt.Errorf("line %s: %w", line, err)
		}
		if err := protojson.Unmarshal(encodeObjects(chunk.Result), &batch); err != nil {
			return nil, err
		}
		events = append(events, batch.Events...)
	}
	return events, nil
}

func (h httpWire) ways() []way {
	return []way{
		func(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			var resp runlogv1.AppendEventsResponse
			err := h.call(ctx, "", req, &resp)
			return &resp, err
		},
		batchOfOne(h),
	}
}

// natural is no event: over HTTP a payload keeps its bytes (ENV-8).
func (h httpWire) natural(*contract.Event) bool { return false }

func (h httpWire) otherForm() runlogv1.PayloadForm_Form { return runlogv1.PayloadForm_JSON }

func (h httpWire) restarted() {}
