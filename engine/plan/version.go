package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"runlog/proto/contract/jsontext"
)

// Version is that of the schema of a plan.
type Version struct{ Major, Minor int }

// current is the schema version of this build: the one that producers of plans write. Minors only
// add optional members, so a plan of an earlier minor is one of this minor without them.
var current = Version{1, 2}

// Current returns the schema version of this build.
func Current() Version { return current }

// maxBehind is how many minors before the current one are read.
const maxBehind = 3

// String returns the version as plans have it, such as v1.2.
func (v Version) String() string { return fmt.Sprintf("v%d.%d", v.Major, v.Minor) }

// Less reports whether v comes before w.
func (v Version) Less(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

var errVersion = errors.New("is no schema version: write major and minor, such as v1.2")

// ParseVersion reads v1.2, 1.2, or v1, which is v1.0.
func ParseVersion(text string) (Version, error) {
	major, minor, both := strings.Cut(strings.TrimPrefix(text, "v"), ".")
	if !both {
		minor = "0"
	}
	var v Version
	for to, digits := range map[*int]string{&v.Major: major, &v.Minor: minor} {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || digits != strconv.FormatUint(n, 10) {
			return Version{}, errVersion
		}
		*to = int(n)
	}
	return v, nil
}

func versionFault(text string) string {
	if text == "" {
		return "is required"
	}
	if _, err := ParseVersion(text); err != nil {
		return err.Error()
	}
	return ""
}

// maxEvolutionBytes bounds a schemaEvolutionPath.
const maxEvolutionBytes = 256

// parsePath reads a schemaEvolutionPath: rising versions of one major with arrows between them.
func parsePath(text string) ([]Version, error) {
	if len(text) > maxEvolutionBytes {
		return nil, fmt.Errorf("has %d bytes: at most %d are allowed", len(text), maxEvolutionBytes)
	}
	var path []Version
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "->", "→"), "→") {
		v, err := ParseVersion(strings.TrimSpace(part))
		if err != nil {
			return nil, errors.New("is no path: write versions with arrows, such as v1.0 → v1.1")
		}
		if n := len(path); n > 0 && (path[n-1].Major != v.Major || !path[n-1].Less(v)) {
			return nil, fmt.Errorf("goes from %v to %v: each version must be a later minor", path[n-1], v)
		}
		path = append(path, v)
	}
	return path, nil
}

// Migration turns a plan of one schema version into one of a later version. It gets the members of
// the plan, may change them, and returns those of the new plan. It is a pure function.
// schemaVersion is set for it.
type Migration func(plan map[string]json.RawMessage) (map[string]json.RawMessage, error)

// Versions knows which schema versions are read, and how (PLAN-3). Fill it first, then use it.
type Versions struct {
	current    Version
	migrations map[[2]Version]Migration
	deprecated map[Version]time.Time
}

// NewVersions returns versions of which only current is read.
func NewVersions(current Version) *Versions {
	return &Versions{current: current, migrations: map[[2]Version]Migration{}, deprecated: map[Version]time.Time{}}
}

// BuiltIn returns the versions of this build: v1.0 to v1.2. None is deprecated.
func BuiltIn() *Versions {
	v := NewVersions(current)
	same := func(plan map[string]json.RawMessage) (map[string]json.RawMessage, error) { return plan, nil }
	for minor := range current.Minor {
		v.migrations[[2]Version{{current.Major, minor}, {current.Major, minor + 1}}] = same
	}
	return v
}

// Register adds the migration between two versions of the current major.
func (v *Versions) Register(from, to Version, m Migration) error {
	hop := [2]Version{from, to}
	switch _, taken := v.migrations[hop]; {
	case taken:
		return fmt.Errorf("plan: register a migration: from %v to %v there is one", from, to)
	case from.Major != v.current.Major || to.Major != v.current.Major || !from.Less(to) || v.current.Less(to):
		return fmt.Errorf("plan: register a migration from %v to %v: it must rise within major %d, to at most %v", from, to, v.current.Major, v.current)
	}
	v.migrations[hop] = m
	return nil
}

// Deprecate says that plans of a version may not be read from a day on.
func (v *Versions) Deprecate(version Version, day time.Time) { v.deprecated[version] = day }

// supported lists the versions that are read, the oldest first.
func (v *Versions) supported() (list []Version) {
	for minor := max(v.current.Minor-maxBehind, 0); minor <= v.current.Minor; minor++ {
		list = append(list, Version{v.current.Major, minor})
	}
	return list
}

// check refuses a version that is not read.
func (v *Versions) check(version Version) error {
	var why string
	switch {
	case version.Major != v.current.Major:
		why = "has another major version"
	case v.current.Less(version):
		why = "is newer than this engine: upgrade the engine"
	case version.Minor < v.current.Minor-maxBehind:
		why = fmt.Sprintf("is more than %d minor versions old: write the plan in a later version", maxBehind)
	default:
		return nil
	}
	return &VersionError{Message: fmt.Sprintf("%v %s; known are %v to %v", version, why, v.supported()[0], v.current)}
}

// warning returns a text for a deprecated version.
func (v *Versions) warning(version Version) string {
	day, ok := v.deprecated[version]
	if !ok {
		return ""
	}
	return fmt.Sprintf("the schema version %v is deprecated and may not be read from %s on: write the plan in %v", version, day.Format(time.DateOnly), v.current)
}

// route returns the versions from one to the current one: along a path that begins at or before the
// version, and then each minor in turn.
func (v *Versions) route(from Version, path []Version) []Version {
	route := []Version{from}
	if i := slices.Index(path, from); i >= 0 {
		route = slices.Clone(path[i:])
	}
	for last := route[len(route)-1]; last.Less(v.current); route = append(route, last) {
		last.Minor++
	}
	return route
}

// migrate brings a plan from a version to the current one.
func (v *Versions) migrate(doc map[string]json.RawMessage, from Version, path []Version) (map[string]json.RawMessage, error) {
	if len(path) > 0 && !slices.Contains(path, from) {
		return nil, &VersionError{Message: fmt.Sprintf("the schemaEvolutionPath does not contain %v, which is the plan's version: correct the reference", from)}
	}
	route := v.route(from, path)
	for i, to := range route[1:] {
		m, ok := v.migrations[[2]Version{route[i], to}]
		if !ok {
			return nil, &VersionError{Message: fmt.Sprintf("there is no migration from %v to %v; there are those %s", route[i], to, v.hops())}
		}
		var err error
		if doc, err = m(doc); err == nil && doc == nil {
			err = errors.New("it returns no plan")
		}
		if err != nil {
			return nil, &VersionError{Message: fmt.Sprintf("the migration from %v to %v fails: %v", route[i], to, err)}
		}
		doc["schemaVersion"] = json.RawMessage(`"` + to.String() + `"`)
	}
	return doc, nil
}

// read checks the schemaVersion of a plan, and returns the plan in the current version, its own
// version, and a warning if there is one. A plan of another version than its reference says is not
// read: its other faults would be those of a version that is not the one of the run.
func (v *Versions) read(body []byte, referenced, evolution string) (migrated []byte, version Version, warning string, err error) {
	var d decoder
	var text string
	d.open = true
	d.object(nil, body, []member{{"schemaVersion", true, d.text(&text, versionFault)}})
	if err := d.err(whatPlan); err != nil {
		return nil, Version{}, "", err
	}
	if version, err = ParseVersion(text); err == nil {
		err = v.check(version)
	}
	if want, fault := ParseVersion(referenced); err == nil && fault == nil && version != want {
		err = &VersionError{Message: fmt.Sprintf("the reference says %v, and the plan has %v: correct the reference", want, version)}
	}
	if err != nil {
		return nil, Version{}, "", err
	}
	var path []Version
	if evolution != "" {
		if path, err = parsePath(evolution); err != nil {
			return nil, Version{}, "", &VersionError{Message: "the schemaEvolutionPath " + err.Error()}
		}
	}
	warning = v.warning(version)
	if version == v.current {
		return body, version, warning, nil
	}
	doc := map[string]json.RawMessage{}
	for c := jsontext.Members(body); ; {
		name, value, ok := c.Member()
		if !ok {
			break
		}
		if _, twice := doc[string(name)]; twice {
			return body, version, warning, nil // Parse reports it.
		}
		doc[string(name)] = value
	}
	if doc, err = v.migrate(doc, version, path); err != nil {
		return nil, Version{}, "", err
	}
	migrated, err = json.Marshal(doc)
	if err == nil {
		if pos, fault := jsontext.CheckObject(migrated, jsontext.MaxDepth); fault != 0 {
			err = fmt.Errorf("%s at byte %d", fault, pos)
		}
	}
	if err != nil {
		return nil, Version{}, "", &VersionError{Message: fmt.Sprintf("the migration from %v leaves no JSON: %v", version, err)}
	}
	return migrated, version, warning, nil
}

// hops lists the migrations in order.
func (v *Versions) hops() string {
	list := slices.SortedFunc(maps.Keys(v.migrations), func(a, b [2]Version) int {
		for i := range a {
			if a[i] != b[i] {
				if a[i].Less(b[i]) {
					return -1
				}
				return 1
			}
		}
		return 0
	})
	texts := make([]string, len(list))
	for i, hop := range list {
		texts[i] = fmt.Sprintf("from %v to %v", hop[0], hop[1])
	}
	return strings.Join(texts, ", ")
}
