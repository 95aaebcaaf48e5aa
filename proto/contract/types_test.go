package contract

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTypeCodesGolden fixes the codes that lie on disk.
func TestTypeCodesGolden(t *testing.T) {
	want, err := os.ReadFile("testdata/types.golden")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for code := uint32(1); ; code++ {
		name, ok := TypeName(code)
		if !ok {
			break
		}
		fmt.Fprintf(&got, "%d %s\n", code, name)
		if TypeCode(name) != code {
			t.Errorf("TypeCode(%q) = %d, want %d", name, TypeCode(name), code)
		}
	}
	if got.String() != string(want) {
		t.Errorf("codes changed; they are persisted:\n%s", got.String())
	}
}

func TestENV6UnknownTypeHasNoCode(t *testing.T) {
	for _, name := range []string{"", "runStarted", "RunStarted ", "Custom"} {
		if code := TypeCode(name); code != 0 {
			t.Errorf("TypeCode(%q) = %d, want 0", name, code)
		}
	}
	for _, code := range []uint32{0, 19, 1 << 31} {
		if name, ok := TypeName(code); ok || name != "" {
			t.Errorf("TypeName(%d) = %q, %v", code, name, ok)
		}
	}
}

func TestENV2ScopeOf(t *testing.T) {
	for code := uint32(0); code <= 19; code++ {
		name, _ := TypeName(code)
		want := ScopeAny
		switch {
		case strings.HasPrefix(name, "Run"):
			want = ScopeRun
		case strings.HasPrefix(name, "Step"):
			want = ScopeStep
		}
		if got := ScopeOf(name); got != want {
			t.Errorf("ScopeOf(%q) = %d, want %d", name, got, want)
		}
	}
}

// TestENV6LikelyType: a known type is suggested within two edits, whatever the case.
func TestENV6LikelyType(t *testing.T) {
	for name, want := range map[string]string{
		"runStarted": RunStarted, "RUNCANCELLED": RunCancelled, "RunCanceled": RunCancelled, "StepStated": StepStarted,
		"StepComplteed": StepCompleted, "StepFailedd": StepFailed, "xRunQueued": RunQueued,
		RunStarted: "", "": "", "Run": "", "StepFinished": "", "HeartbeatSeen": "", "RunStart": RunStarted, "RnuStarted": RunStarted, "run_started": RunStarted,
		"RnuStatred": "", "RunSta": "",
	} {
		if got, ok := LikelyType(name); got != want || ok != (want != "") {
			t.Errorf("%q seems to mean %q (%v), want %q", name, got, ok, want)
		}
	}
}
