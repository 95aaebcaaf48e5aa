package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/machine/metadata"
)

var cluster = storage.ClusterID{7}

// command makes the n-th command, of about size bytes. Its outcome will carry n as LastSeq.
func command(n, size int) storage.Command {
	c, err := storage.EncodeOne(metadata.Set(strconv.Itoa(n), strings.Repeat("x", size), contract.Author{}, nil))
	if err != nil {
		panic(err)
	}
	return c
}

// group stands in for Raft: it takes proposals, and answers each when the test says so.
type group struct {
	mu        sync.Mutex
	proposals [][]int // the commands of each, by number
	clocks    []int64
	sizes     []int
	refuse    error              // of Propose
	fail      error              // of wait
	before    func()             // called in Propose
	release   chan struct{}      // one for each answer; nil: at once
	delay     func(int) duration // of an answer, when release is nil
	last      chan struct{}      // closed once the last proposal is answered
}

type duration = time.Duration

func (g *group) propose(data []byte, done func([]storage.Outcome, error)) error {
	if g.before != nil {
		g.before()
	}
	numbers := decode(data)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.proposals = append(g.proposals, numbers)
	g.clocks = append(g.clocks, int64(binary.BigEndian.Uint64(data[21:])))
	g.sizes = append(g.sizes, len(data))
	if g.refuse != nil {
		return g.refuse
	}
	before, answered := g.last, make(chan struct{})
	g.last = answered
	go g.answer(numbers, len(g.proposals), g.fail, before, func(outcomes []storage.Outcome, err error) {
		done(outcomes, err)
		close(answered)
	})
	return nil
}

// answer answers a proposal when the test says so, and after the one before it.
func (g *group) answer(numbers []int, nth int, fail error, before <-chan struct{}, done func([]storage.Outcome, error)) {
	if before != nil {
		<-before
	}
	if g.release != nil {
		<-g.release
	} else if g.delay != nil {
		time.Sleep(g.delay(nth))
	}
	if fail != nil {
		done(nil, fail)
		return
	}
	outcomes := make([]storage.Outcome, 0, len(numbers))
	for _, n := range numbers {
		outcomes = append(outcomes, storage.Outcome{LastSeq: uint64(n), Position: storage.Position(nth)})
	}
	done(outcomes, nil)
}

func (g *group) seen() [][]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.proposals)
}

// decode reads a log entry as docs/formats.md shows it, and returns the numbers of its commands.
func decode(data []byte) []int {
	if storage.ClusterID(data[1:17]) != cluster {
		panic("another cluster")
	}
	count := binary.BigEndian.Uint32(data[29:])
	rest := data[33 : len(data)-4]
	var numbers []int
	for range count {
		n := binary.BigEndian.Uint32(rest)
		var m recordv1.Command
		if err := proto.Unmarshal(rest[4:4+n], &m); err != nil {
			panic(err)
		}
		var set recordv1.MetadataOperation
		if err := proto.Unmarshal(m.Operations[0].Data, &set); err != nil {
			panic(err)
		}
		number, err := strconv.Atoi(set.RunId)
		if err != nil {
			panic(err)
		}
		numbers = append(numbers, number)
		rest = rest[4+n:]
	}
	if len(rest) > 0 {
		panic("bytes after the last command")
	}
	return numbers
}

// answers collects what callers get.
type answers struct {
	mu    sync.Mutex
	given map[int]error
	done  sync.WaitGroup
}

// submit puts a command into the log and waits for its outcome.
func submit(ctx context.Context, b *Batcher, cmd storage.Command) (storage.Outcome, error) {
	t, err := b.Enqueue("", cmd)
	if err != nil {
		return storage.Outcome{}, err
	}
	return t.Wait(ctx)
}

// submit calls submit in a goroutine of its own, and returns once the command is queued or
// answered.
func (a *answers) submit(ctx context.Context, t *testing.T, b *Batcher, n, size int) {
	t.Helper()
	a.done.Go(func() {
		o, err := submit(ctx, b, command(n, size))
		if err == nil && o.LastSeq != uint64(n) {
			err = fmt.Errorf("command %d was told the outcome of %d", n, o.LastSeq)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.given == nil {
			a.given = map[int]error{}
		}
		if _, twice := a.given[n]; twice {
			t.Errorf("command %d was answered twice", n)
		}
		a.given[n] = err
	})
	synctest.Wait()
}

func (a *answers) expect(t *testing.T, n int, want error) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	got, ok := a.given[n]
	if !ok {
		t.Errorf("command %d has no answer", n)
	} else if !errors.Is(got, want) || want == nil && got != nil {
		t.Errorf("command %d was told %v, want %v", n, got, want)
	}
}

func (a *answers) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.given)
}

// bubble runs a test in simulated time with a batcher over g. It closes the batcher at the end.
func bubble(t *testing.T, g *group, opts Options, test func(t *testing.T, b *Batcher, a *answers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Propose, opts.Cluster = g.propose, cluster
		if g.release != nil {
			g.release = make(chan struct{}, cap(g.release)) // Of this bubble.
		}
		b := New(opts)
		var a answers
		test(t, b, &a)
		if g.release != nil {
			close(g.release)
		}
		b.Close()
		a.done.Wait()
		if b.mu.bytes != 0 {
			t.Errorf("%d bytes are still counted", b.mu.bytes)
		}
	})
}

func sameProposals(t *testing.T, g *group, want ...[]int) {
	t.Helper()
	if got := g.seen(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("proposals %v, want %v", got, want)
	}
}

// TestFold proves D1: a command goes at once while nothing is under way; what comes later is
// folded, in order, into the next proposal.
func TestFold(t *testing.T) {
	g := &group{release: make(chan struct{})}
	bubble(t, g, Options{}, func(t *testing.T, b *Batcher, a *answers) {
		begin := time.Now()
		for n := range 7 {
			a.submit(t.Context(), t, b, n, 10)
		}
		sameProposals(t, g, []int{0})
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("the first proposal waited for %v", waited)
		}
		g.release <- struct{}{}
		synctest.Wait()
		a.expect(t, 0, nil)
		sameProposals(t, g, []int{0}, []int{1, 2, 3, 4, 5, 6})
		a.submit(t.Context(), t, b, 7, 10)
		sameProposals(t, g, []int{0}, []int{1, 2, 3, 4, 5, 6})
		g.release <- struct{}{}
		synctest.Wait()
		sameProposals(t, g, []int{0}, []int{1, 2, 3, 4, 5, 6}, []int{7})
		for n := range 7 {
			a.expect(t, n, nil)
		}
		if a.count() != 7 {
			t.Errorf("%d answers, want 7", a.count())
		}
	})
}

// TestOutstanding proves D1: while a proposal is under way, others go when they are full, and never
// are more than Outstanding under way.
func TestOutstanding(t *testing.T) {
	const size = 1000
	one := command(0, size).Size()
	for _, most := range []int{1, 2, 5} {
		g := &group{release: make(chan struct{})}
		bubble(t, g, Options{Outstanding: most, ProposalBytes: 2 * one}, func(t *testing.T, b *Batcher, a *answers) {
			a.submit(t.Context(), t, b, 0, size)
			a.submit(t.Context(), t, b, 1, size)
			if got := len(g.seen()); got != 1 {
				t.Errorf("%d proposals are under way, want 1: the second is not full", got)
			}
			for n := 2; n < 20; n++ {
				a.submit(t.Context(), t, b, n, size)
			}
			if got := len(g.seen()); got != most {
				t.Errorf("%d proposals are under way, want %d", got, most)
			}
		})
	}
}

// TestProposalBytes proves D1: a proposal holds at most ProposalBytes of commands, and a command
// that is larger goes alone.
func TestProposalBytes(t *testing.T) {
	const size = 1000
	one := command(0, size).Size()
	g := &group{release: make(chan struct{})}
	bubble(t, g, Options{Outstanding: 1, ProposalBytes: 3*one + 10}, func(t *testing.T, b *Batcher, a *answers) {
		a.submit(t.Context(), t, b, 0, 1)
		for n := 1; n <= 5; n++ {
			a.submit(t.Context(), t, b, n, size)
		}
		a.submit(t.Context(), t, b, 6, 50*size)
		a.submit(t.Context(), t, b, 7, size)
	})
	sameProposals(t, g, []int{0}, []int{1, 2, 3}, []int{4, 5}, []int{6}, []int{7})
	for i, n := range g.sizes {
		if limit := 3*one + 10 + 37; n > limit && i != 3 {
			t.Errorf("proposal %d has %d bytes, more than %d", i, n, limit)
		}
	}
}

// TestOverload proves APP-9: what does not fit is refused before it is queued and is never
// proposed; once there is room, commands are taken again.
func TestOverload(t *testing.T) {
	size := command(0, 1000).Size()
	g := &group{release: make(chan struct{})}
	// One line gets two thirds of the queue.
	bubble(t, g, Options{QueueBytes: int64(6 * size)}, func(t *testing.T, b *Batcher, a *answers) {
		for n := range 6 {
			a.submit(t.Context(), t, b, n, 1000)
		}
		// Proposed and not yet answered counts too.
		a.expect(t, 4, ErrOverloaded)
		a.expect(t, 5, ErrOverloaded)
		if a.count() != 2 {
			t.Errorf("%d answers, want those of the refused", a.count())
		}
		g.release <- struct{}{}
		synctest.Wait()
		a.expect(t, 0, nil)
		a.submit(t.Context(), t, b, 6, 1000)
		a.submit(t.Context(), t, b, 7, 1000)
		a.expect(t, 7, ErrOverloaded)
	})
	sameProposals(t, g, []int{0}, []int{1, 2, 3}, []int{6})
}

// TestLargerThanQueue shows that a command larger than the whole queue is taken when nothing else
// is, so that it is slow and not impossible; and that nothing is taken in addition to it.
func TestLargerThanQueue(t *testing.T) {
	g := &group{release: make(chan struct{})}
	bubble(t, g, Options{QueueBytes: 100}, func(t *testing.T, b *Batcher, a *answers) {
		a.submit(t.Context(), t, b, 0, 1000)
		a.submit(t.Context(), t, b, 1, 1)
		a.expect(t, 1, ErrOverloaded)
		g.release <- struct{}{}
		synctest.Wait()
		a.expect(t, 0, nil)
		a.submit(t.Context(), t, b, 2, 1)
	})
	sameProposals(t, g, []int{0}, []int{2})
}

// TestAbandoned proves APP-10: a caller whose context ends learns that the outcome is unknown, and
// the command still lands, whether it was queued or under way.
func TestAbandoned(t *testing.T) {
	g := &group{release: make(chan struct{})}
	bubble(t, g, Options{Outstanding: 1}, func(t *testing.T, b *Batcher, a *answers) {
		reason := errors.New("deadline of the caller")
		ctx, cancel := context.WithCancelCause(t.Context())
		a.submit(ctx, t, b, 0, 10)
		a.submit(ctx, t, b, 1, 10)
		a.submit(t.Context(), t, b, 2, 10)
		cancel(reason)
		synctest.Wait()
		for n := range 2 {
			a.expect(t, n, ErrAbandoned)
			a.expect(t, n, reason)
		}
		g.release <- struct{}{}
		g.release <- struct{}{}
		synctest.Wait()
		a.expect(t, 2, nil)
	})
	sameProposals(t, g, []int{0}, []int{1, 2})
}

// TestErrors proves that an error of Propose, or of its wait, reaches every caller of the proposal
// and no other caller.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	for name, setup := range map[string]func(*group){
		"propose": func(g *group) { g.refuse = broken },
		"wait":    func(g *group) { g.fail = broken },
	} {
		t.Run(name, func(t *testing.T) {
			g := &group{release: make(chan struct{}, 10)}
			bubble(t, g, Options{Outstanding: 1}, func(t *testing.T, b *Batcher, a *answers) {
				a.submit(t.Context(), t, b, 0, 10)
				g.mu.Lock()
				setup(g)
				g.mu.Unlock()
				for n := 1; n <= 3; n++ {
					a.submit(t.Context(), t, b, n, 10)
				}
				g.release <- struct{}{}
				g.release <- struct{}{}
				synctest.Wait()
				a.expect(t, 0, nil)
				for n := 1; n <= 3; n++ {
					a.expect(t, n, broken)
				}
				g.mu.Lock()
				g.refuse, g.fail = nil, nil
				g.mu.Unlock()
				a.submit(t.Context(), t, b, 4, 10)
				g.release <- struct{}{}
				g.release <- struct{}{}
				synctest.Wait()
				a.expect(t, 4, nil)
			})
			sameProposals(t, g, []int{0}, []int{1, 2, 3}, []int{4})
		})
	}
}

// TestEnqueue proves APP-8: the commands of one caller are proposed in its order, whichever ticket
// is waited for first. A refused command returns its error at once.
func TestEnqueue(t *testing.T) {
	const fits = 20
	size := int64(command(0, 100).Size())
	g := &group{release: make(chan struct{}, fits)}
	bubble(t, g, Options{Outstanding: 1, QueueBytes: fits * size, ProposalBytes: int(5 * size)}, func(t *testing.T, b *Batcher, _ *answers) {
		var tickets []Ticket
		for i := range fits / 2 {
			ticket, err := b.Enqueue("", command(i, 100))
			if err != nil {
				t.Fatal(err)
			}
			tickets = append(tickets, ticket)
		}
		if _, err := b.Enqueue("", command(99, 100*fits)); !errors.Is(err, ErrOverloaded) {
			t.Errorf("a command that does not fit gives %v", err)
		}
		for range fits {
			g.release <- struct{}{}
		}
		for i, ticket := range slices.Backward(tickets) {
			if o, err := ticket.Wait(t.Context()); err != nil || o.LastSeq != uint64(i) {
				t.Errorf("ticket %d was told %d, error %v", i, o.LastSeq, err)
			}
		}
	})
	var order []int
	for _, numbers := range g.seen() {
		order = append(order, numbers...)
	}
	if len(order) != fits/2 || !slices.IsSorted(order) {
		t.Errorf("proposed in the order %v", order)
	}
}

// TestClock proves APP-5 and D7: a proposal carries the leader's clock as of when it is cut, not
// when its commands came.
func TestClock(t *testing.T) {
	g := &group{release: make(chan struct{})}
	var times []int64
	bubble(t, g, Options{Outstanding: 1}, func(t *testing.T, b *Batcher, a *answers) {
		times = append(times, time.Now().UnixNano())
		a.submit(t.Context(), t, b, 0, 10)
		a.submit(t.Context(), t, b, 1, 10)
		time.Sleep(time.Hour)
		times = append(times, time.Now().UnixNano())
		g.release <- struct{}{}
		synctest.Wait()
	})
	if !slices.Equal(g.clocks, times) {
		t.Errorf("clocks %v, want %v", g.clocks, times)
	}
}
