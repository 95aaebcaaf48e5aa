package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/sink/sinktest"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

const topic = "runs"

// bed is a test with a network.
type bed struct {
	*testing.T
	net *network.Network
}

// newBed returns the bed of a bubble. The connections of its servers end in fake time.
func newBed(t *testing.T) *bed {
	t.Cleanup(func() { time.Sleep(time.Minute) })
	return &bed{t, network.New(1)}
}

// client makes a client dial on the network.
func (t *bed) client() kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, _, to string) (net.Conn, error) {
		return t.net.Dial(ctx, "127.0.0.1", to)
	})
}

// cluster starts a cluster of one broker.
func cluster(t *bed, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, topic), kfake.ListenFn(t.net.Listen)}, opts...)
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func open(t *bed, d *runlogv1.KafkaDelivery, opts Options) *Sink {
	t.Helper()
	if d.Topic == "" {
		d.Topic = topic
	}
	if got := faults(d); got != nil {
		t.Fatal(got)
	}
	opts.client = append(opts.client, t.client())
	s, err := New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func openOn(t *bed, c *kfake.Cluster, opts Options) *Sink {
	t.Helper()
	return open(t, &runlogv1.KafkaDelivery{Brokers: c.ListenAddrs()}, opts)
}

// consume returns the first n records of the topic.
func consume(t *bed, c *kfake.Cluster, n int) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic), t.client())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), bubble.Limit)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n && ctx.Err() == nil {
		records = append(records, cl.PollFetches(ctx).Records()...)
	}
	if len(records) != n {
		t.Fatalf("want %d records, got %d", n, len(records))
	}
	return records
}

func wantError(t testing.TB, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
	}
}

// wantPermanent wants to know whether an error says that no attempt can succeed.
func wantPermanent(t testing.TB, err error, want bool) {
	t.Helper()
	if _, got := errors.AsType[*attempt.PermanentError](err); got != want {
		t.Errorf("permanent: want %v, got %v: %v", want, got, err)
	}
}

// refuse lets the broker refuse produce requests with an error: those that the function selects.
func refuse(c *kfake.Cluster, code int16, selected func(*kmsg.ProduceRequest) bool) {
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r := req.(*kmsg.ProduceRequest)
		if !selected(r) {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range r.Topics {
			to := kmsg.NewProduceResponseTopic()
			to.Topic, to.TopicID = rt.Topic, rt.TopicID
			for _, p := range rt.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition, part.ErrorCode = p.Partition, code
				to.Partitions = append(to.Partitions, part)
			}
			resp.Topics = append(resp.Topics, to)
		}
		return resp, nil, true
	})
}

// TestProduceBUS7: a record is a CloudEvent with its run as key.
func TestProduceBUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		c := cluster(t)
		var acks atomic.Int32
		c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			acks.Store(int32(req.(*kmsg.ProduceRequest).Acks))
			return nil, nil, false
		})
		s := openOn(t, c, Options{})
		if err := sinktest.Send(t, s, sinktest.Event("run-1", 7, `{"n":1}`)); err != nil {
			t.Fatal(err)
		}
		r := consume(t, c, 1)[0]
		var got event.Event
		if err := json.Unmarshal(r.Value, &got); err != nil || got.Validate() != nil || got.Subject() != "run-1" || string(got.Data()) != `{"n":1}` {
			t.Errorf("%v: %s", err, r.Value)
		}
		if string(r.Key) != "run-1" || len(r.Headers) != 1 || r.Headers[0].Key != "content-type" || string(r.Headers[0].Value) != cloudevent.ContentType {
			t.Errorf("got key %s, headers %v", r.Key, r.Headers)
		}
		// An idempotent producer has an id.
		if r.ProducerID < 0 || acks.Load() != -1 {
			t.Errorf("want an idempotent producer and all acknowledgements, got id %d, acks %d", r.ProducerID, acks.Load())
		}
	})
}

// TestOrderBUS3 produces many runs side by side: each is in one partition, in its order.
func TestOrderBUS3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		const runs, events = 20, 5
		c := cluster(t)
		s := openOn(t, c, Options{})
		for seq := range events {
			var all [runs]*sinktest.Pending
			for i := range all {
				all[i] = sinktest.Begin(t.Context(), t, s, sinktest.Event(strings.Repeat("r", i+1), uint64(seq), `{}`))
			}
			for _, p := range all {
				if err := p.Wait(); err != nil {
					t.Fatal(err)
				}
			}
		}
		next, partition := map[string]int{}, map[string]int32{}
		for _, r := range consume(t, c, runs*events) {
			run := string(r.Key)
			var got event.Event
			if err := json.Unmarshal(r.Value, &got); err != nil {
				t.Fatal(err)
			}
			if seq := string('0' + rune(next[run])); got.Extensions()["runseq"] != seq {
				t.Errorf("%s: want runseq %s, got %v", run, seq, got.Extensions()["runseq"])
			}
			if next[run] > 0 && partition[run] != r.Partition {
				t.Errorf("%s is in two partitions", run)
			}
			next[run]++
			partition[run] = r.Partition
		}
	})
}

// TestNewLeaderBUS6: a broker that does not lead costs one more request.
func TestNewLeaderBUS6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		c := cluster(t)
		var refused atomic.Int32
		refuse(c, kerr.NotLeaderForPartition.Code, func(*kmsg.ProduceRequest) bool { return refused.Add(1) == 1 })
		s := openOn(t, c, Options{})
		if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)); err != nil || refused.Load() < 2 {
			t.Errorf("%v after %d requests", err, refused.Load())
		}
		consume(t, c, 1)
	})
}

// TestTooLargeBUS4: a record that no batch can have is refused for good; it does not take others
// of its batch with it.
func TestTooLargeBUS4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		c := cluster(t, kfake.SeedTopics(1, topic))
		const limit = 2000 // bytes of a batch that the broker takes
		refuse(c, kerr.MessageTooLarge.Code, func(r *kmsg.ProduceRequest) bool {
			return len(r.Topics[0].Partitions[0].Records) > limit
		})
		s := openOn(t, c, Options{client: []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}})
		// All of the run's partition, so that they share batches.
		var small [20]*sinktest.Pending
		for i := range small {
			small[i] = sinktest.Begin(t.Context(), t, s, sinktest.Event("run", uint64(i), `{"a":"`+strings.Repeat("x", 800)+`"}`))
		}
		large := sinktest.Begin(t.Context(), t, s, sinktest.Event("run", 99, `{"a":"`+strings.Repeat("x", limit)+`"}`))
		for i, p := range small {
			if err := p.Wait(); err != nil {
				t.Errorf("event %d: %v", i, err)
			}
		}
		err := large.Wait()
		wantError(t, err, "kafka: the record has about 2", "more than the topic runs takes: raise its max.message.bytes")
		wantPermanent(t, err, true)
		consume(t, c, len(small))
	})
}

// TestLargestEventBUS4: the largest payload that a node can allow is the broker's to judge.
func TestLargestEventBUS4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		c := cluster(t)
		s := openOn(t, c, Options{})
		if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{"a":"`+strings.Repeat("x", maxBatch)+`"}`)); err != nil {
			t.Fatal(err)
		}
		consume(t, c, 1)
	})
}

// TestTopicMissingBUS7: no topic is created, also where the brokers would do it.
func TestTopicMissingBUS7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		c := cluster(t, kfake.AllowAutoTopicCreation())
		s := open(t, &runlogv1.KafkaDelivery{Brokers: c.ListenAddrs(), Topic: "other"}, Options{})
		err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`))
		wantError(t, err, "kafka: the topic other does not exist: create it")
		wantPermanent(t, err, false)
		if info := c.TopicInfo("other"); info != nil {
			t.Errorf("the topic was created: %+v", info)
		}
		// It may be created later.
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), t.client())
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		req := kmsg.NewPtrCreateTopicsRequest()
		create := kmsg.NewCreateTopicsRequestTopic()
		create.Topic, create.NumPartitions, create.ReplicationFactor = "other", 1, 1
		req.Topics = append(req.Topics, create)
		if _, err := req.RequestWith(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
		if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusedBUS4 has an error of the broker that is not about the size.
func TestRefusedBUS4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		c := cluster(t)
		refuse(c, kerr.TopicAuthorizationFailed.Code, func(*kmsg.ProduceRequest) bool { return true })
		err := sinktest.Send(t, openOn(t, c, Options{}), sinktest.Event("run", 1, `{}`))
		wantError(t, err, "kafka: produce to the topic runs: TOPIC_AUTHORIZATION_FAILED")
		wantPermanent(t, err, false)
	})
}

// TestHangingBrokerBUS9: a broker that does not answer ends no attempt late, and the records that
// wait for it are bounded.
func TestHangingBrokerBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		const inFlight = 10
		c := cluster(t)
		answer := make(chan struct{})
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			c.SleepControl(func() { <-answer })
			return nil, nil, false
		})
		s := openOn(t, c, Options{MaxInFlight: inFlight})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			var all [inFlight]*sinktest.Pending
			for i := range all {
				all[i] = sinktest.Begin(ctx, t, s, sinktest.Event("run", uint64(i), `{}`))
			}
			for _, p := range all {
				if err := p.Wait(); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("want the deadline, got %v", err)
				}
			}
			cancel()
		}
		wantError(t, sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)), "kafka: too many records wait for an answer")
		close(answer)
		bubble.Until(t, "an attempt succeeds", func() bool { return sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)) == nil })
	})
}

// TestCancelBUS9: an attempt that is cancelled takes no other one with it.
func TestCancelBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		c := cluster(t, kfake.SeedTopics(1, topic))
		answer := make(chan struct{})
		c.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.SleepControl(func() { <-answer })
			return nil, nil, false
		})
		s := openOn(t, c, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		cancelled := sinktest.Begin(ctx, t, s, sinktest.Event("run", 1, `{}`))
		other := sinktest.Begin(t.Context(), t, s, sinktest.Event("run", 2, `{}`))
		if err := cancelled.Wait(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want the deadline, got %v", err)
		}
		close(answer)
		if err := other.Wait(); err != nil {
			t.Error(err)
		}
		// What became of the cancelled one is not known: it may be stored.
	})
}

// TestUnreachableBUS9: an attempt without a broker says why.
func TestUnreachableBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		const address = "127.0.0.1:9"
		s := open(t, &runlogv1.KafkaDelivery{Brokers: []string{address}}, Options{})
		err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`))
		wantError(t, err, "kafka: ", "connection refused")
		wantPermanent(t, err, false)
		wantError(t, s.late(), "kafka: no acknowledgement of "+address+" within 10s", "connection refused")
	})
}

// TestHostileBrokersBUS9: no broker holds an attempt up for longer than its context, or a Close.
func TestHostileBrokersBUS9(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn){
		"says nothing":              func(net.Conn) {},
		"closes":                    func(c net.Conn) { c.Close() },
		"speaks HTTP":               func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") },
		"promises a large answer":   func(c net.Conn) { c.Write([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1}) },
		"promises a strange answer": func(c net.Conn) { c.Write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(test *testing.T) {
				t := newBed(test)
				l, err := t.net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				stop := make(chan struct{})
				var serving sync.WaitGroup
				t.Cleanup(func() { close(stop); l.Close(); serving.Wait() })
				serving.Go(func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						serving.Go(func() {
							defer c.Close()
							serve(c)
							<-stop
						})
					}
				})
				s := open(t, &runlogv1.KafkaDelivery{Brokers: []string{l.Addr().String()}}, Options{})
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				begin := time.Now()
				if sinktest.Begin(ctx, t, s, sinktest.Event("run", 1, `{}`)).Wait() == nil {
					t.Error("want an error")
				}
				s.Close()
				if took := time.Since(begin); took > 300*time.Millisecond {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// TestCloseBUS9: Close ends what is under way, and later attempts fail.
func TestCloseBUS9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(test *testing.T) {
		t := newBed(test)
		c := cluster(t)
		arrived, answer := make(chan struct{}), make(chan struct{})
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			close(arrived)
			c.SleepControl(func() { <-answer })
			return nil, nil, false
		})
		t.Cleanup(func() { close(answer) })
		s := openOn(t, c, Options{})
		pending := sinktest.Begin(t.Context(), t, s, sinktest.Event("run", 1, `{}`))
		<-arrived
		s.Close()
		for _, err := range []error{pending.Wait(), sinktest.Send(t, s, sinktest.Event("run", 2, `{}`))} {
			if !errors.Is(err, attempt.ErrClosed) {
				t.Errorf("want ErrClosed, got %v", err)
			}
		}
	})
}
