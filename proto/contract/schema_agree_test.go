package contract

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/testbed/seed"
)

const defaultValidations = 6000

// validations is how many payloads TestENV5SchemaAgreesWithJudgeAtRandom makes.
var validations = flag.Int("validations", defaultValidations, "payloads to hold against the JSON Schema library")

// Payloads made from a schema are valid, and broken in one place they are refused at that place
// alone.
func TestENV5MadePayloads(t *testing.T) {
	for _, name := range knownTypes {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			line := rapid.SampledFrom([]Line{Line2, Line11}).Draw(t, "line")
			m, schema := newMaker(line, name, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") })
			payload := m.payload(schema)
			text := m.written(payload)
			if _, _, expected := checkAgainstJudge(t, line, name, text); !expected {
				t.Fatalf("%s is not valid", text)
			}
			// A site of the payload itself, not of a member, would make it something else than an
			// object.
			sites := slices.DeleteFunc(m.sites, func(s site) bool { return s.at == "" })
			if len(sites) == 0 {
				return
			}
			broken := sites[m.pick(len(sites))]
			broken.apply()
			text = m.written(payload)
			checkAgainstJudge(t, line, name, text)
			bad, remarks, _ := payloadRule(line, name).Faults(text, 9)
			if all := slices.Concat(bad, remarks); len(all) != 1 || all[0].Path != broken.at {
				t.Fatalf("%s broken at %s: %v", text, broken.at, all)
			}
		}))
	}
}

// What runs over bytes and the library agree about everything that chance comes up with: payloads
// that are valid, broken in several places, and broken as texts.
func TestENV5SchemaAgreesWithJudgeAtRandom(t *testing.T) {
	draws := uint64(1)
	if *validations != defaultValidations {
		draws = seed.New(t)
	}
	random := rand.New(rand.NewPCG(draws, 2))
	var objects, valid int
	for n := range *validations {
		line, name := Line(n%2), knownTypes[n/2%len(knownTypes)]
		m, schema := newMaker(line, name, random.IntN)
		payload := m.payload(schema)
		for range max(0, m.pick(5)-2) {
			m.sites[m.pick(len(m.sites))].apply()
		}
		text := m.written(payload)
		for range max(0, m.pick(6)-3) {
			text = mutate(m, text)
		}
		object, _, ok := checkAgainstJudge(t, line, name, text)
		if object {
			objects++
		}
		if ok {
			valid++
		}
	}
	t.Logf("seed %d: %d texts, %d of them objects, %d as expected", draws, *validations, objects, valid)
	if valid < *validations/10 || objects < *validations/2 || valid > objects*9/10 {
		t.Error("the texts are one-sided")
	}
}

// pieces are what mutations put into a text.
var pieces = []string{
	`"`, `\`, `{`, `}`, `[`, `]`, `,`, `:`, ` `, `null`, `true`, `0`, `-1`, `1e5`, `1.0`, `""`, `{}`, `[]`, `"uri":`, `"kind":"k",`, `"message":1,`,
	`\u0000`, `\ud83d`, `\ude00`, "\xff", "é", "e", ".", "-", "+", "Z", "T", `"error":"x",`, `"artifacts":[],`, `"outcome":"FAIL",`, `"sizeBytes":-0.0,`,
	`"\u0065rror":{"message":"m"},`, `"planRef":{},`, `"startedAt":"2026-02-11T10:30:00Z",`, "\x00", "\n",
}

// mutate changes a text as a careless hand would.
func mutate(m *maker, text []byte) []byte {
	if len(text) == 0 {
		return []byte(m.oneOf(pieces...))
	}
	i := m.pick(len(text))
	switch m.pick(6) {
	case 0:
		return slices.Delete(slices.Clone(text), i, min(len(text), i+1+m.pick(3)))
	case 1:
		out := slices.Clone(text)
		out[i] ^= 1 << m.pick(8)
		return out
	case 2:
		j := min(len(text), i+1+m.pick(40))
		return slices.Insert(slices.Clone(text), m.pick(len(text)), text[i:j]...)
	default:
		// A piece goes where a member or a value may begin, mostly.
		for range m.pick(60) {
			if i+1 < len(text) && text[i] != '{' && text[i] != ',' && text[i] != ':' {
				i++
			}
		}
		return slices.Insert(slices.Clone(text), min(i+1, len(text)), []byte(m.oneOf(pieces...))...)
	}
}

func FuzzSchemaAgreesWithJudge(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for code, name := range typeNames {
		if name == "" {
			continue
		}
		for _, line := range []Line{Line2, Line11} {
			m, schema := newMaker(line, name, random.IntN)
			f.Add(line == Line11, uint8(code-1), m.written(m.payload(schema)))
		}
	}
	f.Fuzz(func(t *testing.T, old bool, code uint8, payload []byte) {
		line := Line2
		if old {
			line = Line11
		}
		name, ok := TypeName(uint32(code)%uint32(len(knownTypes)) + 1)
		if !ok {
			t.Fatal(code)
		}
		checkAgainstJudge(t, line, name, payload)
	})
}
