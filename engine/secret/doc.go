// Package secret resolves the secrets of steps in the worker, and keeps them out of what a step
// leaves behind (ENG-7).
//
//	plan: secretRefs ["env:DB", "vault:kv/team/db#password"]
//	          │
//	          ▼
//	Provider.Resolve ──► *Set ──► Value.Reveal      only where the secret is used
//	 Env File Vault       │
//	 by scheme: Mux       └────► Redactor           outputs, logs, errors: Text, JSON, NewWriter
//	                                 └─ Scan        tests fail when a secret leaks
//
// A reference is a scheme, a colon and a name. What it names belongs to the tenant and the
// environment of the run: the same reference in a run of another tenant is another secret. Plans
// have references and never values. A Value prints as [secret] by every way of fmt, encoding/json
// and log/slog; Reveal alone has the text.
//
// A Redactor replaces each value of a Set, and the forms in which programs repeat it: base64 also
// within a longer text, hexadecimal, escaped for URLs, and escaped for JSON. It also replaces each
// long line of a value with several lines. A value that a program has changed otherwise, such as by
// encryption or in parts, is not found.
//
// Invariants:
//   - Redacted text has no form of a value, not even one that a mark makes together with its
//     neighbours. A Set refuses values for which there is no such mark.
//   - Text without a secret stays as it is.
//   - Errors name the reference and never the value. A text of an unknown scheme may be a value
//     that a plan has in the wrong place: its error has its number alone.
package secret
