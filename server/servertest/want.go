package servertest

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
)

// Within fails the test when f takes longer than patience, and says so instead of hanging.
func Within[T any](t testing.TB, what string, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(Patience):
		t.Fatalf("not done after %v: %s", Patience, what)
		panic("unreachable")
	}
}

// WantEqual wants two values to be equal.
func WantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// WantProto wants two messages to be equal.
func WantProto(t testing.TB, what string, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}
