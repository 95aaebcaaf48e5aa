package witness

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Incarnation is the time of a directory from one start of its node to the next.
type Incarnation struct {
	// Number counts the starts, from 1.
	Number uint64 `json:"number"`
	// ID is random: two copies of a directory get different ones for the same number.
	ID string `json:"id"`
}

const (
	selfFile = "incarnations"
	// keptIncarnations bounds the file and a greeting. A member that was away for longer cannot
	// tell whether what it remembers is an ancestor.
	keptIncarnations = 64
	idBytes          = 8
)

// self is the content of the file "incarnations", in JSON with a checksum.
type self struct {
	// Incarnations of the directory, the newest first.
	Incarnations []Incarnation `json:"incarnations"`
	// Overruled is the term of the last leader that made this node drop the end of its log; 0:
	// none.
	Overruled uint64 `json:"overruled,omitempty"`
	// Alone is the log entry that made this node the only member of its group, after the others
	// were lost; 0: none. What those still remember does not count.
	Alone uint64 `json:"alone,omitempty"`
}

func readSelf(files Files) (s self, err error) {
	body, err := files.Read(selfFile)
	if err == nil && body != nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		return self{}, fmt.Errorf("raft: read %s: %w", selfFile, err)
	}
	return s, nil
}

func (s *self) write(files Files) error {
	body, err := json.Marshal(s)
	if err == nil {
		err = files.Replace(selfFile, body)
	}
	if err != nil {
		return fmt.Errorf("raft: write %s: %w", selfFile, err)
	}
	return nil
}

// begun returns self with a new incarnation. A directory without one comes from a build that did
// not note which leader made it drop the end of its log: it may be the one of the present term.
func (s self) begun(term uint64) self {
	if len(s.Incarnations) == 0 {
		s.Overruled = term
	}
	number := uint64(1)
	if len(s.Incarnations) > 0 {
		number = s.Incarnations[0].Number + 1
	}
	id := make([]byte, idBytes)
	_, _ = rand.Read(id) // never fails
	kept := s.Incarnations[:min(len(s.Incarnations), keptIncarnations-1)]
	s.Incarnations = append([]Incarnation{{Number: number, ID: hex.EncodeToString(id)}}, kept...)
	return s
}

// descends reports whether a directory with these incarnations can have had another one: it is
// among them, or older than all of them.
func descends(incarnations []Incarnation, from Incarnation) bool {
	if from.Number == 0 || len(incarnations) == 0 {
		return true // nothing is known of one of them
	}
	for _, i := range incarnations {
		if i.Number == from.Number {
			return i.ID == from.ID
		}
	}
	return from.Number < incarnations[len(incarnations)-1].Number
}
