package record

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Operation is one part of a compound command.
type Operation struct {
	Kind uint32
	Data []byte
}

// Kinds of the core's operations.
const (
	KindAppend           = 1
	KindRaiseLevel       = 2
	KindBeginIncarnation = 3
	KindReleaseHold      = 4
)

// ErrCommand means that a command cannot be decoded.
var ErrCommand = errors.New("storage: undecodable command")

// maxOperations of one command. It bounds what a refusal has to undo.
const maxOperations = 1000

// Fields of record.v1.Command and record.v1.Operation.
const (
	fieldAppend     = 1
	fieldOperations = 2
	fieldKind       = 1
	fieldData       = 2
)

// EncodeCommand makes a command of 1 to 1,000 operations. They take effect together or not at all,
// in their order: each sees what those before it have written. Its Outcome has one Answer each.
//
// Operations that are likely to be refused come first: to undo a few is cheaper.
func EncodeCommand(operations ...Operation) (Command, error) {
	if n := len(operations); n == 0 || n > maxOperations {
		return Command{}, fmt.Errorf("storage: encode command: %d operations, want 1 to %d: split the command", n, maxOperations)
	}
	var data, one []byte
	for _, op := range operations {
		if op.Kind == 0 {
			return Command{}, errors.New("storage: encode command: an operation without a kind")
		}
		one = protowire.AppendVarint(protowire.AppendTag(one[:0], fieldKind, protowire.VarintType), uint64(op.Kind))
		one = protowire.AppendBytes(protowire.AppendTag(one, fieldData, protowire.BytesType), op.Data)
		data = protowire.AppendBytes(protowire.AppendTag(data, fieldOperations, protowire.BytesType), one)
	}
	return Command{data: data}, nil
}

// IsAppend tells whether a command is one append, without a look at it.
func IsAppend(c Command) bool {
	return len(c.data) > 0 && c.data[0] == fieldAppend<<3|byte(protowire.BytesType)
}

// ParsedOperation is a decoded Operation. It aliases the log entry.
type ParsedOperation struct {
	Kind uint32
	Data []byte
}

func parseOperation(data []byte) (op ParsedOperation, err error) {
	fields := 0
	err = walkFields(data, func(f field) (err error) {
		switch f.number {
		case fieldKind:
			f.want(protowire.VarintType, &err)
			if op.Kind = uint32(f.bits); uint64(op.Kind) != f.bits {
				err = errors.Join(err, fmt.Errorf("%w: operation of kind %d", errWire, f.bits))
			}
			fields |= 1
		case fieldData:
			op.Data = f.raw(&err)
			fields |= 2
		default:
			err = fmt.Errorf("%w: field %d of an operation", errWire, f.number)
		}
		return err
	})
	if err == nil && (fields != 3 || op.Kind == 0) {
		err = fmt.Errorf("%w: operation without a kind or data", errWire)
	}
	return op, err
}

// ParseCommand takes a record.v1.Command apart: an append, into a, or operations, which it appends
// to ops. It has one or the other.
func ParseCommand(data []byte, a *AppendCommand, ops []ParsedOperation) ([]ParsedOperation, error) {
	appends, before := 0, len(ops)
	err := walkFields(data, func(f field) (err error) {
		f.want(protowire.BytesType, &err)
		switch f.number {
		case fieldAppend:
			appends++
			return errors.Join(err, a.Parse(f.bytes))
		case fieldOperations:
			var op ParsedOperation
			if err == nil {
				op, err = parseOperation(f.bytes)
			}
			ops = append(ops, op)
			return err
		default:
			return fmt.Errorf("%w: field %d of a command", errWire, f.number)
		}
	})
	operations := len(ops) - before
	if err == nil && (appends > 1 || appends == 1 && operations > 0 || appends == 0 && operations == 0 || operations > maxOperations) {
		err = fmt.Errorf("%w: command of %d appends and %d operations", errWire, appends, operations)
	}
	return ops, err
}

// ParseCommandOf is ParseCommand of a command that was encoded here.
func ParseCommandOf(c Command, a *AppendCommand, ops []ParsedOperation) ([]ParsedOperation, error) {
	return ParseCommand(c.data, a, ops)
}

// CommandOf returns the command with an encoding.
func CommandOf(data []byte) Command { return Command{data: data} }

// CommandBytes returns the encoding of a command.
func CommandBytes(c Command) []byte { return c.data }
