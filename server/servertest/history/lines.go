package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// formatVersion is the version in the first line.
const formatVersion = 1

// line is one line of a file. The first has the version, and every other line has one of the other
// fields. A node starts a Final, to which the following lines belong.
type line struct {
	Version  int          `json:"version,omitempty"`
	Op       *Op          `json:"op,omitempty"`
	Node     *string      `json:"node,omitempty"`
	Record   *Record      `json:"record,omitempty"`
	Hash     *AppliedHash `json:"hash,omitempty"`
	Tree     *TreeRoot    `json:"tree,omitempty"`
	Snapshot *Snapshot    `json:"snapshot,omitempty"`
	Window   *Window      `json:"window,omitempty"`

	Subscription *Subscription `json:"subscription,omitempty"`
	Act          *Act          `json:"act,omitempty"`
}

// Encode writes a history and the nodes' finals as lines of JSON.
func Encode(w io.Writer, h *History, finals ...*Final) error {
	buf := bufio.NewWriter(w)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	var failed error
	put := func(l line) {
		if failed == nil {
			failed = enc.Encode(&l)
		}
	}
	put(line{Version: formatVersion})
	for i := range h.Ops {
		put(line{Op: &h.Ops[i]})
	}
	for i := range h.Subscriptions {
		put(line{Subscription: &h.Subscriptions[i]})
	}
	for i := range h.Acts {
		put(line{Act: &h.Acts[i]})
	}
	for _, f := range finals {
		put(line{Node: &f.Node})
		for i := range f.Records {
			put(line{Record: &f.Records[i]})
		}
		for i := range f.Hashes {
			put(line{Hash: &f.Hashes[i]})
		}
		for i := range f.Trees {
			put(line{Tree: &f.Trees[i]})
		}
		for i := range f.Snapshots {
			put(line{Snapshot: &f.Snapshots[i]})
		}
		for i := range f.Windows {
			put(line{Window: &f.Windows[i]})
		}
	}
	return errors.Join(failed, buf.Flush())
}

// Decode reads what Encode wrote. The error names the invalid line.
func Decode(r io.Reader) (*History, []*Final, error) {
	h := &History{}
	var finals []*Final
	buf := bufio.NewReader(r)
	for n := 1; ; n++ {
		text, err := buf.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			if n == 1 {
				return nil, nil, errors.New("history: empty")
			}
			return h, finals, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, fmt.Errorf("history: line %d: %w", n, err)
		}
		if finals, err = readLine(text, n == 1, h, finals); err != nil {
			return nil, nil, fmt.Errorf("history: line %d: %w", n, err)
		}
	}
}

func readLine(text []byte, first bool, h *History, finals []*Final) ([]*Final, error) {
	var l line
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	if first {
		if l != (line{Version: formatVersion}) {
			return nil, fmt.Errorf("is not {\"version\":%d}", formatVersion)
		}
		return finals, nil
	}
	return l.add(h, finals)
}

// add adds the content of a line.
func (l *line) add(h *History, finals []*Final) ([]*Final, error) {
	if l.members() != 1 || l.Version != 0 {
		return nil, errors.New("is not one of op, subscription, act, node, record, hash, tree, snapshot and window")
	}
	switch {
	case l.Op != nil:
		if l.Op.kind() == "" {
			return nil, errors.New("the op is not one of appends, read, snapshot, mark and window")
		}
		h.Ops = append(h.Ops, *l.Op)
		return finals, nil
	case l.Subscription != nil:
		h.Subscriptions = append(h.Subscriptions, *l.Subscription)
		return finals, nil
	case l.Act != nil:
		h.Acts = append(h.Acts, *l.Act)
		return finals, nil
	case l.Node != nil:
		return append(finals, &Final{Node: *l.Node}), nil
	case len(finals) == 0:
		return nil, errors.New("belongs to a node, and none was named yet")
	}
	f := finals[len(finals)-1]
	switch {
	case l.Record != nil:
		f.Records = append(f.Records, *l.Record)
	case l.Hash != nil:
		f.Hashes = append(f.Hashes, *l.Hash)
	case l.Tree != nil:
		f.Trees = append(f.Trees, *l.Tree)
	case l.Snapshot != nil:
		f.Snapshots = append(f.Snapshots, *l.Snapshot)
	default:
		f.Windows = append(f.Windows, *l.Window)
	}
	return finals, nil
}

func (l *line) members() (n int) {
	for _, set := range [...]bool{
		l.Op != nil, l.Node != nil, l.Record != nil, l.Hash != nil, l.Snapshot != nil, l.Window != nil,
		l.Subscription != nil, l.Act != nil, l.Tree != nil,
	} {
		if set {
			n++
		}
	}
	return n
}
