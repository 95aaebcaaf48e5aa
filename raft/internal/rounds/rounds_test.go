package rounds

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRoundsCoalesces proves D8: concurrent callers share a round, and no caller joins a round
// that began before its call: the leadership may have been lost in between.
func TestRoundsCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan int)
		answer := make(chan error)
		rounds := 0
		v := Rounds{Call: func() error {
			rounds++
			begun <- rounds
			return <-answer
		}}
		var mu sync.Mutex
		told := map[string]error{}
		join := func(name string) {
			go func() {
				err := v.Join(t.Context())
				mu.Lock()
				defer mu.Unlock()
				told[name] = err
			}()
			synctest.Wait()
		}
		want := func(name string, err error) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got, ok := told[name]; !ok || !errors.Is(got, err) || err == nil && got != nil {
				t.Errorf("%s was told %v (%t), want %v", name, got, ok, err)
			}
		}
		join("first")
		<-begun
		for _, name := range []string{"second", "third", "fourth"} {
			join(name)
		}
		answer <- nil
		want("first", nil)
		if len(told) != 1 {
			t.Errorf("%v were answered by a round that began before them", told)
		}
		<-begun
		join("fifth")
		lost := errors.New("lost")
		answer <- lost
		for _, name := range []string{"second", "third", "fourth"} {
			want(name, lost)
		}
		<-begun
		answer <- nil
		want("fifth", nil)
		if rounds != 3 {
			t.Errorf("%d rounds for five callers, want 3", rounds)
		}
		// Without a caller, no round runs; the next caller starts one.
		join("sixth")
		<-begun
		answer <- nil
		want("sixth", nil)
	})
}

// TestRoundsContext shows that a cancelled caller does not affect the others.
func TestRoundsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := Rounds{Call: func() error { time.Sleep(time.Second); return nil }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		patient := make(chan error, 1)
		go func() { patient <- v.Join(t.Context()) }()
		if err := v.Join(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if err := <-patient; err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second) // The cancelled caller's round may come second.
	})
}

// TestRoundsOrder proves READ-2 under load: a caller gets the result of a round that began at or
// after the call.
func TestRoundsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var began time.Time
		v := Rounds{Call: func() error {
			mu.Lock()
			began = time.Now()
			mu.Unlock()
			time.Sleep(7 * time.Millisecond)
			return nil
		}}
		var done sync.WaitGroup
		for c := range 20 {
			done.Go(func() {
				for range 50 {
					time.Sleep(time.Duration(c%5) * time.Millisecond)
					asked := time.Now()
					if err := v.Join(t.Context()); err != nil {
						t.Error(err)
					}
					mu.Lock()
					// The answering round is the last one that began, or the one before it.
					if latest := began; latest.Before(asked) {
						t.Errorf("asked at %v, answered by a round of %v", asked, latest)
					}
					mu.Unlock()
				}
			})
		}
		done.Wait()
	})
}
