package decode

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"time"

	"runlog/proto/contract"
	"runlog/server/budget"
)

// BodyTimeout is the time in which a request must arrive, as an HTTP body or as a gRPC message of
// more than budget.Uncounted bytes. http.Server's ReadTimeout would also end streams, because their
// connections are read as long as they last.
const BodyTimeout = 30 * time.Second

const (
	// MaxBatchRequests is the maximum of requests in one BatchAppend.
	MaxBatchRequests = 1000
	// MaxBatchEvents is the maximum of their events in all: ten full requests of AppendEvents.
	MaxBatchEvents = 10 * contract.MaxEvents
	// MaxStartEvents is the maximum of events in one ReleaseLease.
	MaxStartEvents = 10

	// maxValues is the maximum of JSON values in the payloads of one request, if they come as
	// Struct. A value takes up to 220 bytes of memory (measured; a Struct of one
	// member 450), so decoding takes 58 MB at most. 256 Ki values are 1,000 payloads of 4 KiB with
	// a value every 16 bytes. As proto they take at most 16 bytes each more than as JSON.
	maxValues = 256 << 10
	// leastTransport is the minimum of Transport, for messages that are read only to be refused.
	leastTransport = 16 << 20
)

// Limits limit one request.
type Limits struct {
	// Bytes is the maximum size of a gRPC message or of an HTTP body.
	Bytes int
	// Memory is the budget from which requests and answers draw. nil: no limit.
	Memory *budget.Budget
	// BodyTimeout is the time in which a request must arrive. Default: BodyTimeout.
	BodyTimeout time.Duration
	// Cut closes the connection of a client that does not read its answer. nil: it stays.
	Cut func(net.Addr)
	// ReadTimeout is the time in which an answer must be read. Default: 30 s, and a second for each
	// 64 KiB.
	ReadTimeout time.Duration
}

func (l Limits) bodyTimeout() time.Duration { return cmp.Or(l.BodyTimeout, BodyTimeout) }

// Transport is the size of messages that gRPC must be set to read. It is above Bytes: if gRPC
// itself finds a message too large, it ends the call with a bare RESOURCE_EXHAUSTED, which has
// another meaning in the contract. It has room for the proto form of an HTTP body of Bytes.
func (l Limits) Transport() int { return max(2*l.Bytes, leastTransport) }

// TooLarge returns the error of a request with more bytes.
func (l Limits) TooLarge() *contract.Error {
	return &contract.Error{
		Reason:   contract.ReasonPayloadTooLarge,
		Message:  fmt.Sprintf("the request has more than %d bytes, the limit: send fewer events at a time, or keep large data elsewhere and send references to it", l.Bytes),
		Metadata: map[string]string{"max_bytes": strconv.Itoa(l.Bytes)},
	}
}

func tooManyValues() *contract.Error {
	return &contract.Error{
		Reason:   contract.ReasonPayloadTooLarge,
		Message:  fmt.Sprintf("the payloads of the request hold more than %d JSON values, the limit: send fewer events at a time, or as payload_json", maxValues),
		Metadata: map[string]string{"max_values": strconv.Itoa(maxValues)},
	}
}

// CheckBatch refuses a BatchAppend with too many requests, or too many events in all.
func CheckBatch(requests, events int) *contract.Error {
	switch {
	case requests == 0 || requests > MaxBatchRequests:
		return refuse("requests", "has %d requests: send 1 to %d", requests, MaxBatchRequests)
	case events > MaxBatchEvents:
		return refuse("requests", "have %d events in all: send at most %d", events, MaxBatchEvents)
	default:
		return nil
	}
}

// CheckStart refuses a ReleaseLease with too many events.
func CheckStart(events int) *contract.Error {
	if events > MaxStartEvents {
		return refuse("events", "has %d events: send at most %d", events, MaxStartEvents)
	}
	return nil
}

func refuse(field, format string, args ...any) *contract.Error {
	return contract.NewError([]contract.Violation{violation(field, format, args...)})
}

func violation(field, format string, args ...any) contract.Violation {
	return contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fmt.Sprintf(format, args...)}
}
