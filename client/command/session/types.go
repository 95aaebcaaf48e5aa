package session

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"runlog/proto/contract"
)

// typeList is the value of the flag --type: event types.
type typeList []string

// TypesFlag adds the flag --type to a command. It takes one or more event types, and may be
// repeated.
func TypesFlag(cmd *cobra.Command, types *[]string) {
	cmd.Flags().Var((*typeList)(types), "type",
		`only events of these types, separated by commas; may be repeated; \, is a comma in a type`)
	var known []string
	for code := uint32(1); ; code++ {
		name, ok := contract.TypeName(code)
		if !ok {
			break
		}
		known = append(known, name)
	}
	Complete(cmd, "type", known...)
}

// String returns the types as Set takes them.
func (l *typeList) String() string {
	var texts []string
	for _, name := range *l {
		texts = append(texts, strings.ReplaceAll(name, ",", `\,`))
	}
	return strings.Join(texts, ",")
}

// Set takes types. A comma that belongs to a type is written \, because a type may have one
// (ENV-3).
func (l *typeList) Set(text string) error {
	name := ""
	var types []string
	end := func() bool {
		name = strings.TrimSpace(name) // which no type begins or ends with
		types = append(types, name)
		ok := name != ""
		name = ""
		return ok
	}
	whole := true
	for {
		before, after, more := strings.Cut(text, ",")
		escaped, isEscaped := strings.CutSuffix(before, `\`)
		if more && isEscaped {
			name, text = name+escaped+",", after
			continue
		}
		name += before
		whole = end() && whole
		if text = after; !more {
			break
		}
	}
	if !whole {
		return errors.New("a type is empty; give one or more types with single commas between them, or leave the flag out")
	}
	*l = append(*l, types...)
	return nil
}

// Type names the value in the help.
func (l *typeList) Type() string { return "types" }
