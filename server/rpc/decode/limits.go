package decode

import (
	"fmt"
	"strconv"

	"runlog/proto/contract"
)

const (
	// MaxBatchRequests is how many requests one BatchAppend carries at most.
	MaxBatchRequests = 1000
	// MaxBatchEvents is how many events they have together at most: as many as ten full requests of
	// AppendEvents.
	MaxBatchEvents = 10 * contract.MaxEvents

	// maxValues is how many JSON values the payloads of one request hold at most, where they come
	// as Struct or over HTTP. A value takes up to 220 bytes in memory (measured; a Struct of one
	// member 450), so that decoding makes 58 MB at most: 256 Ki of them are 1,000 payloads of 4 KiB
	// with a value every 16 bytes. In proto they take no more than 16 bytes each beyond their JSON.
	maxValues = 256 << 10
	// leastTransport is what a small limit is rounded up to for messages that are read only to be
	// refused.
	leastTransport = 16 << 20
)

// Limits of one request.
type Limits struct {
	// Bytes of a gRPC message or of an HTTP body.
	Bytes int
}

// Transport is how large a message gRPC must be set to read. It is above Bytes, because what gRPC
// itself finds too large ends the call with a bare RESOURCE_EXHAUSTED, which means another thing in
// the contract. It is enough for what an HTTP body of Bytes may become in proto.
func (l Limits) Transport() int { return max(2*l.Bytes, leastTransport) }

// TooLarge is the refusal of a request of more bytes.
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
		Message:  fmt.Sprintf("the payloads of the request hold more than %d JSON values, the limit: send fewer events at a time, or over gRPC as payload_json", maxValues),
		Metadata: map[string]string{"max_values": strconv.Itoa(maxValues)},
	}
}

// CheckBatch refuses a BatchAppend of so many requests with so many events in all.
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

func refuse(field, format string, args ...any) *contract.Error {
	return contract.NewError([]contract.Violation{violation(field, format, args...)})
}

func violation(field, format string, args ...any) contract.Violation {
	return contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fmt.Sprintf(format, args...)}
}
