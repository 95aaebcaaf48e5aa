package export

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf8"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// The members of a record, in the order in which lines have them. Readers take them in any.
const (
	memberEventID = iota
	memberEventType
	memberRunID
	memberTenantID
	memberProjectID
	memberEnvironmentID
	memberPlanID
	memberPlanVersion
	memberStepID
	memberLogicalAttemptID
	memberEngineAttemptID
	memberIdempotencyKey
	memberEmittedAt
	memberEmittedBy
	memberCausedBySignalID
	memberParentEventID
	memberContractVersion
	memberRunSeq
	memberPersistedAt
	memberPayloadDigest
	memberRecordDigest
	memberChainDigest
	memberInherited
	memberAppendedBy
	memberAppendedByTokenID
	memberOriginalPersistedAt
	memberOriginalSource // a column: a line has it inside of original
	memberExtensions
	memberPayload
	memberPayloadJSON
	memberExtensionsJSON
	members

	optionalMembers = 1<<memberStepID | 1<<memberEmittedBy | 1<<memberCausedBySignalID | 1<<memberParentEventID |
		1<<memberAppendedBy | 1<<memberAppendedByTokenID | 1<<memberOriginalPersistedAt | 1<<memberOriginalSource | 1<<memberExtensions |
		1<<memberPayload | 1<<memberPayloadJSON | 1<<memberExtensionsJSON
)

var memberNames = [members]string{
	"eventId", "eventType", "runId", "tenantId", "projectId", "environmentId", "planId", "planVersion", "stepId",
	"logicalAttemptId", "engineAttemptId", "idempotencyKey", "emittedAt", "emittedBy", "causedBySignalId", "parentEventId",
	"contractVersion", "runSeq", "persistedAt", "payloadDigest", "recordDigest", "chainDigest", "inherited",
	"appendedBy", "appendedByTokenId", "original", "", "extensions", "payload", "payloadJson", "extensionsJson",
}

// quotedMembers are the names as lines have them, with the colon.
var quotedMembers = func() (quoted [members]string) {
	for i, name := range memberNames {
		quoted[i] = `"` + name + `":`
	}
	return quoted
}()

// The expected forms of a value.
const (
	wantText    = "a JSON string"
	wantUUID    = "a UUID of 36 characters in lower case"
	wantDigest  = "64 lower-case hexadecimal digits"
	wantTime    = "a time such as 2026-02-11T10:30:00.123Z"
	wantNumber  = "a whole number from 1 on"
	wantVersion = `"2.0.0" or "1.1"`
	wantNames   = "a list of tenantId, projectId, environmentId, planId and planVersion"
	wantObject  = "a JSON object"
	wantBase64  = "a JSON object in base64"

	wantOriginal = "an object of a time persistedAt and, if there is one, a string source"
	wantNoSource = "empty, though the event has no original_persisted_at"
)

// lineReader reads the members of one line. raw and text have the same bytes.
type lineReader struct {
	raw  []byte
	text string
	pos  int
}

// parseLine parses a line of appendLine, without its line feed, and returns its fault. The record
// shares its texts with text and its payload with raw.
//
// It only finds the payload's end: the payload's digest shows whether it is the stored one.
func parseLine(raw []byte, text string, r *Record) (fault string) {
	*r = Record{}
	l := lineReader{raw: raw, text: text}
	if !utf8.ValidString(text) {
		return "is not valid UTF-8"
	}
	if !l.take('{') {
		return "is not a JSON object"
	}
	seen, next := uint32(0), 0
	for {
		k := l.name(next)
		if k < 0 {
			return l.stranger()
		}
		if seen&(1<<k) != 0 {
			return memberNames[k] + " is given twice"
		}
		seen |= 1 << k
		if want := l.value(k, r); want != "" {
			return fmt.Sprintf("%s is not %s", memberNames[k], want)
		}
		if next = k + 1; l.take(',') {
			continue
		}
		if !l.take('}') {
			return fmt.Sprintf("has neither a comma nor its end behind %s", memberNames[k])
		}
		break
	}
	if l.pos < len(text) {
		return "goes on behind the record"
	}
	if missing := (1<<members - 1) &^ optionalMembers &^ seen; missing != 0 {
		return memberNames[bits.TrailingZeros32(missing)] + " is missing"
	}
	if payloads := seen >> memberPayload & 3; payloads != 1 && payloads != 2 {
		return "has not one of payload and payloadJson"
	}
	if seen>>memberExtensions&1 == 1 && seen>>memberExtensionsJSON == 1 {
		return "has both extensions and extensionsJson"
	}
	return ""
}

func (l *lineReader) take(c byte) bool {
	if l.pos < len(l.text) && l.text[l.pos] == c {
		l.pos++
		return true
	}
	return false
}

// name takes the name of a member and returns its number, usually next; -1: unknown.
func (l *lineReader) name(next int) int {
	rest := l.text[l.pos:]
	for range members {
		if next >= members {
			next = 0
		}
		if next != memberOriginalSource && strings.HasPrefix(rest, quotedMembers[next]) {
			l.pos += len(quotedMembers[next])
			return next
		}
		next++
	}
	return -1
}

// stranger returns the text in place of a member's name.
func (l *lineReader) stranger() string {
	if strings.HasPrefix(l.text, manifestMember) {
		return "has a manifest, behind which nothing may come"
	}
	at := l.pos
	if name, ok := l.string(); ok {
		return fmt.Sprintf("has a member %s, which records do not have", contract.Quote(name))
	}
	return fmt.Sprintf("has no member's name at byte %d", at)
}

// value takes the value of a member, or returns the expected form.
func (l *lineReader) value(k int, r *Record) (want string) {
	var ok bool
	switch k {
	case memberEventID:
		return l.parsed(wantUUID, func(text string) bool { return parseUUID(&r.EventID, text) })
	case memberEventType:
		r.Type, ok = l.string()
	case memberRunID:
		r.RunID, ok = l.string()
	case memberTenantID:
		r.TenantID, ok = l.string()
	case memberProjectID:
		r.ProjectID, ok = l.string()
	case memberEnvironmentID:
		r.EnvironmentID, ok = l.string()
	case memberPlanID:
		r.PlanID, ok = l.string()
	case memberPlanVersion:
		r.PlanVersion, ok = l.string()
	case memberStepID:
		r.StepID, ok = l.present()
	case memberIdempotencyKey:
		r.IdempotencyKey, ok = l.string()
	case memberEmittedBy:
		r.EmittedBy, ok = l.present()
	case memberCausedBySignalID:
		r.CausedBySignalID, ok = l.present()
	case memberParentEventID:
		r.ParentEventID, ok = l.present()
	case memberAppendedBy:
		r.AppendedBy.Name, ok = l.present()
	case memberAppendedByTokenID:
		r.AppendedBy.TokenID, ok = l.present()
	default:
		return l.assigned(k, r)
	}
	if !ok {
		return wantText
	}
	return ""
}

// present is string for a member that is omitted if empty.
func (l *lineReader) present() (string, bool) {
	text, ok := l.string()
	return text, ok && text != ""
}

// assigned is value for the members that are no text.
func (l *lineReader) assigned(k int, r *Record) (want string) {
	switch k {
	case memberLogicalAttemptID:
		return l.count(&r.LogicalAttemptID)
	case memberEngineAttemptID:
		return l.count(&r.EngineAttemptID)
	case memberEmittedAt:
		return l.parsed(wantTime, func(text string) bool { return parseTime(&r.EmittedAt, text) })
	case memberPersistedAt:
		return l.parsed(wantTime, func(text string) bool { return parseTime(&r.PersistedAt, text) })
	case memberOriginalPersistedAt:
		return l.original(&r.Original)
	case memberContractVersion:
		return l.parsed(wantVersion, func(text string) bool { return parseContract(&r.Contract, text) })
	case memberRunSeq:
		return l.parsed(wantNumber, func(text string) (ok bool) { r.RunSeq, ok = parseNumber(text, 64); return ok })
	case memberPayloadDigest:
		return l.parsed(wantDigest, func(text string) bool { return parseDigest(&r.PayloadDigest, text) })
	case memberRecordDigest:
		return l.parsed(wantDigest, func(text string) bool { return parseDigest(&r.RecordDigest, text) })
	case memberChainDigest:
		return l.parsed(wantDigest, func(text string) bool { return parseDigest(&r.ChainDigest, text) })
	case memberInherited:
		return l.inherited(&r.Absent)
	case memberPayload:
		return l.inLine(&r.Payload)
	case memberExtensions:
		return l.inLine(&r.Extensions)
	case memberExtensionsJSON:
		return l.encoded(&r.Extensions)
	default:
		return l.encoded(&r.Payload)
	}
}

// inLine takes an object as it is.
func (l *lineReader) inLine(dst *[]byte) (want string) {
	if *dst = l.object(); *dst == nil {
		return wantObject
	}
	return ""
}

// encoded takes an object in base64.
func (l *lineReader) encoded(dst *[]byte) (want string) {
	return l.parsed(wantBase64, func(text string) bool {
		var err error
		*dst, err = base64.StdEncoding.Strict().DecodeString(text)
		return err == nil && len(*dst) > 0
	})
}

// parsed takes a string that parse must understand.
func (l *lineReader) parsed(want string, parse func(string) bool) string {
	if text, ok := l.string(); ok && parse(text) {
		return ""
	}
	return want
}

// string takes a JSON string.
func (l *lineReader) string() (string, bool) {
	if l.pos >= len(l.text) || l.text[l.pos] != '"' {
		return "", false
	}
	end := jsontext.SkipString(l.raw, l.pos)
	if end < 0 {
		return "", false
	}
	quoted := l.text[l.pos:end]
	l.pos = end
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], true
	}
	var text string
	return text, json.Unmarshal([]byte(quoted), &text) == nil
}

func (l *lineReader) original(o *contract.Original) (want string) {
	if !l.takeText(`{"persistedAt":`) || l.parsed(wantTime, func(text string) bool { return parseOriginal(&o.PersistedAt, text) }) != "" {
		return wantOriginal
	}
	ok := true
	if l.takeText(`,"source":`) {
		o.Source, ok = l.present()
	}
	if !ok || !l.take('}') {
		return wantOriginal
	}
	return ""
}

func (l *lineReader) takeText(text string) bool {
	ok := strings.HasPrefix(l.text[l.pos:], text)
	if ok {
		l.pos += len(text)
	}
	return ok
}

// count takes a number that is written without quotes.
func (l *lineReader) count(dst *uint32) (want string) {
	end := l.pos
	for end < len(l.text) && '0' <= l.text[end] && l.text[end] <= '9' {
		end++
	}
	n, ok := parseNumber(l.text[l.pos:end], 32)
	*dst, l.pos = uint32(n), end
	if !ok {
		return wantNumber
	}
	return ""
}

func (l *lineReader) inherited(absent *contract.Absent) (want string) {
	if !l.take('[') {
		return wantNames
	}
	for first := true; !l.take(']'); first = false {
		if !first && !l.take(',') {
			return wantNames
		}
		if name, ok := l.string(); !ok || !inherit(absent, name) {
			return wantNames
		}
	}
	return ""
}

// object takes all bytes up to the matching bracket; nil: unterminated.
func (l *lineReader) object() []byte {
	if l.pos >= len(l.text) || l.text[l.pos] != '{' {
		return nil
	}
	from, end := l.pos, jsontext.SkipValue(l.raw, l.pos)
	if end < 0 {
		return nil
	}
	l.pos = end
	return l.raw[from:end:end]
}
