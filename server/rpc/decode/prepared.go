package decode

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"runlog/server/budget"
)

// Prepared is a message that is encoded once, for many streams of guarded services. It counts once,
// until the last of them has sent it.
type Prepared struct{ buf mem.Buffer }

// Prepare encodes a message. One of more than budget.Uncounted bytes draws from the budget. The
// caller frees it once it sends it no more. Error: OVERLOADED.
func Prepare(memory *budget.Budget, m proto.Message) (*Prepared, error) {
	text, err := proto.Marshal(m)
	if err != nil || len(text) <= budget.Uncounted {
		return &Prepared{mem.SliceBuffer(text)}, err
	}
	grant, err := memory.Acquire(budget.Shared, int64(len(text)))
	if err != nil {
		return nil, err
	}
	return &Prepared{mem.NewBuffer(&text, &drawn{grant})}, nil
}

// Free ends the caller's use of the message.
func (p *Prepared) Free() { p.buf.Free() }

// drawn is the buffer pool of one message.
type drawn struct{ grant budget.Grant }

var _ mem.BufferPool = (*drawn)(nil)

// Get implements mem.BufferPool.
func (*drawn) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put releases the message.
func (d *drawn) Put(*[]byte) { d.grant.Release() }
