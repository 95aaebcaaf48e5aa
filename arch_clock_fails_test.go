package runlog_test

import (
	"fmt"
	"go/parser"
	"testing"
)

// TestClockFails shows what TestClock finds, and what it lets through.
func TestClockFails(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"sleep", `func TestX(t *testing.T) { time.Sleep(1) }`, "time.Sleep"},
		{"sleep of a helper", `func TestX(t *testing.T) { help() }; func help() { time.Sleep(1) }`, "time.Sleep"},
		{"sleep of a method", `func TestX(t *testing.T) { b.help() }; func (b *bed) help() { time.Sleep(1) }`, "time.Sleep"},
		{"sleep of a variable", `var x = func() { time.Sleep(1) }; func TestX(t *testing.T) { x() }`, "time.Sleep"},
		{"sleep of a goroutine", `func TestX(t *testing.T) { bubble.Test(t, f); go func() { time.Sleep(1) }() }`, "time.Sleep"},
		{"sleep of a case", `func TestX(t *testing.T) { bubble.Test(t, f); t.Run("", func(t *testing.T) { time.Sleep(1) }) }`, "time.Sleep"},
		{"function for a bubble", `func TestX(t *testing.T) { f := func() { time.Sleep(1) }; bubble.Test(t, func(t *testing.T) { f() }) }`, ""},
		{"table for bubbles", `func TestX(t *testing.T) { for _, f := range []func(){func() { time.Sleep(1) }, func() { help() }} { bubble.Test(t, func(t *testing.T) { f() }) } }; func help() { time.Sleep(1) }`, ""},
		{"sleep in a bubble", `func TestX(t *testing.T) { bubble.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, ""},
		{"helper of bubbles", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { help() }) }; func help() { time.Sleep(1) }`, ""},
		{"function of bubbles", `func TestX(t *testing.T) { inBed(t, func() { time.Sleep(1) }) }; func inBed(t *testing.T, f func()) { bubble.Test(t, func(t *testing.T) { f() }) }`, ""},
		{"function of both", `func TestX(t *testing.T) { inBed(t, func() { time.Sleep(1) }) }; func inBed(t *testing.T, f func()) { bubble.Test(t, func(t *testing.T) { f() }); f() }`, "time.Sleep"},
		{"helper of both", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { help() }); help() }; func help() { time.Sleep(1) }`, "time.Sleep"},
		{"sleep in a shared kit", `func TestX(t *testing.T) { kit.Wait() }`, "time.Sleep"},
		{"sleep below a shared kit", `func TestX(t *testing.T) { b.WaitMore() }`, "time.Sleep"},
		{"shared kit in a bubble", `func TestX(t *testing.T) { bubble.Test(t, func(t *testing.T) { kit.Wait(); b.WaitMore() }) }`, ""},
		{"a function with the name of a kit's method", `import "time"; func TestX(t *testing.T) { time.WaitMore() }`, ""},
		{"a method with that name", `import "time"; func TestX(t *testing.T) { x.time.WaitMore() }`, "time.Sleep"},
		{"a benchmark", `func BenchmarkX(b *testing.B) { time.Sleep(1) }`, ""},
		{"timeout", `func TestX(t *testing.T) { select { case <-c: case <-time.After(1): } }`, "time.After"},
		{"poll", `func TestX(t *testing.T) { await.Poll(t, "", nil) }`, "await.Poll"},
		{"loop with a deadline", `func TestX(t *testing.T) { for time.Now().Before(end) { } }`, "a loop with a deadline"},
		{"upper bound", `func TestX(t *testing.T) { if took := time.Since(began); took > 1 { } }`, "time.Since"},
		{"upper bound, turned", `func TestX(t *testing.T) { if 1 <= time.Since(began) { } }`, "time.Since"},
		{"lower bound", `func TestX(t *testing.T) { if took := time.Since(began); took < 1 { } }`, ""},
		{"port by number", `func TestX(t *testing.T) { net.Listen("tcp", address) }`, "port"},
		{"port 0", `func TestX(t *testing.T) { net.Listen("tcp", "127.0.0.1:0") }`, ""},
		{"global draws", `func TestX(t *testing.T) { rand.IntN(3) }`, "rand"},
		{"draws from a seed", `func TestX(t *testing.T) { rand.New(rand.NewPCG(1, 2)).IntN(3) }`, ""},
		{"goroutines by count", `func TestX(t *testing.T) { runtime.NumGoroutine() }`, "runtime.NumGoroutine"},
	}
	for _, tt := range tests {
		x := newTests()
		kit, err := parser.ParseFile(x.files, "kit.go", `package kit; func Wait() { time.Sleep(1) }; func (b *Bed) WaitMore() { Wait() }`, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parser.ParseFile(x.files, "x_test.go", "package x\n"+tt.body, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		x.trees = []folderFile{{"x", tree}, {sharedKits[0], kit}}
		x.read(false)
		var got []string
		for _, uses := range x.inRealTime() {
			for _, u := range uses {
				got = append(got, u.what)
			}
		}
		if fmt.Sprint(got) != fmt.Sprintf("[%s]", tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		dir, what string
		want      bool
	}{
		{"engine/temporal", "time.Sleep", true},
		{"engine/temporal/cmd/runlog-temporal", "await.Poll", true},
		{"engine/temporal", "time.Since", false},
		{"engine/temporal", "port", false},
		{"engine/temporals", "time.Sleep", false},
		{"engine", "time.Sleep", false},
	} {
		if ofOthers(tt.dir, clockUse{what: tt.what}) != tt.want {
			t.Errorf("%s in %s is let through: %v", tt.what, tt.dir, !tt.want)
		}
	}
}
