package bus

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

// placeOf decodes the id of a delivery, which may name a version behind its runSeq.
func placeOf(id string) history.Place {
	_, text, _ := strings.Cut(id, "-") // Behind the incarnation.
	seq, run, _ := strings.Cut(text, "-")
	seq, _, _ = strings.Cut(seq, ".")
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return history.Place{Run: id} // The check reports it.
	}
	return history.Place{Run: run, RunSeq: n}
}

func placesOf(ids []string) (list []history.Place) {
	for _, id := range ids {
		list = append(list, placeOf(id))
	}
	return list
}

// pullOnce pulls, and settles what comes.
func (c *client) pullOnce(most uint32, wait time.Duration) (got int) {
	ctx, cancel := context.WithTimeout(c.ctx, wait+c.opts.Patience)
	defer cancel()
	since := c.opts.Recorder.Now()
	resp, err := c.node().Pull(ctx, &runlogv1.PullRequest{
		SubscriptionId: c.Name, TenantId: Tenant, Max: most, Wait: durationpb.New(wait),
	})
	if err != nil {
		return 0
	}
	var ids []string
	for _, d := range resp.GetDeliveries() {
		var event struct{ Time time.Time }
		_ = json.Unmarshal(d.GetEventJson(), &event) // The check reports another time.
		c.delivered(c.Name, placeOf(d.GetDeliveryId()), since, event.Time.UnixNano())
		switch n := c.rng.IntN(10); {
		case c.calm.Load() || n < 7:
			ids = append(ids, d.GetDeliveryId())
		case n < 9:
			c.nack(d.GetDeliveryId())
		}
	}
	if len(ids) > 0 {
		if !c.calm.Load() {
			c.pause(ackTimeout * 5 / 4)
		}
		c.ack(ids...)
	}
	return len(resp.GetDeliveries())
}

// ack acknowledges with a call of its own.
func (c *client) ack(ids ...string) {
	ctx, cancel := c.calling()
	defer cancel()
	t := c.act(history.Acked, placesOf(ids)...)
	resp, err := c.node().Ack(ctx, &runlogv1.AckRequest{SubscriptionId: c.Name, TenantId: Tenant, DeliveryIds: ids})
	if err == nil {
		c.opts.Recorder.ReturnAct(t, int(resp.GetAcknowledged()) == len(ids))
	}
}

func (c *client) nack(id string) {
	ctx, cancel := c.calling()
	defer cancel()
	// Unanswered or refused, the delivery fails after a while.
	_, _ = c.node().Nack(ctx, &runlogv1.NackRequest{
		SubscriptionId: c.Name, TenantId: Tenant, DeliveryIds: []string{id}, Delay: durationpb.New(c.delay()),
	})
}

func (c *client) delay() time.Duration { return time.Duration(c.rng.Int64N(int64(retryMost))) }

// streaming is one Consume. Its acknowledgements and credits are sent in order, and the n-th
// delivery needs n credits: it tells which of them the node has looked at.
type streaming struct {
	*client
	stream  runlogv1.SubscriptionService_ConsumeClient
	credits []int64 // when each was sent
	acks    []sentAck
	came    int // deliveries
}

// sentAck is an acknowledgement that was sent with the credit before it.
type sentAck struct {
	ticket  history.ActTicket
	credits int
}

// consume takes deliveries from a stream for some seconds, and leaves.
func (c *client) consume() {
	ctx, cancel := context.WithTimeout(c.ctx, time.Second+time.Duration(c.rng.Int64N(int64(8*time.Second))))
	defer cancel()
	stream, err := c.node().Consume(ctx)
	if err != nil {
		return
	}
	s := &streaming{client: c, stream: stream}
	room := 1 + c.rng.IntN(4)
	if s.send(&runlogv1.ConsumeRequest{
		Kind: &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{SubscriptionId: c.Name, TenantId: Tenant}}, Credits: uint32(room),
	}) != nil {
		return
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return
		}
		for _, d := range resp.GetDeliveries() {
			s.take(d)
			if s.settle(d) != nil {
				return
			}
		}
	}
}

func (s *streaming) send(req *runlogv1.ConsumeRequest) error {
	for range req.Credits {
		s.credits = append(s.credits, s.opts.Recorder.Now())
	}
	return s.stream.Send(req)
}

// take records a delivery, and what it shows of the acknowledgements.
func (s *streaming) take(d *runlogv1.EventDelivery) {
	s.came++
	since := int64(0)
	if s.came <= len(s.credits) {
		since = s.credits[s.came-1]
	}
	for len(s.acks) > 0 && s.acks[0].credits <= s.came {
		s.opts.Recorder.ReturnAct(s.acks[0].ticket, false)
		s.acks = s.acks[1:]
	}
	s.delivered(s.Name, placeOf(d.GetDeliveryId()), since, d.GetEvent().GetPersistedAt().AsTime().UnixNano())
}

// settle does something with a delivery.
func (s *streaming) settle(d *runlogv1.EventDelivery) error {
	req := &runlogv1.ConsumeRequest{Credits: 1}
	id := []string{d.GetDeliveryId()}
	switch n := s.rng.IntN(20); {
	case n < 9:
		if s.rng.IntN(4) == 0 {
			s.pause(ackTimeout * 3 / 2)
		}
		t := s.act(history.Acked, placesOf(id)...)
		s.acks = append(s.acks, sentAck{t, len(s.credits) + 1})
		req.Kind = &runlogv1.ConsumeRequest_Ack{Ack: &runlogv1.AckDeliveries{DeliveryIds: id}}
	case n < 15:
		s.ack(id...)
	case n < 18:
		req.Kind = &runlogv1.ConsumeRequest_Nack{Nack: &runlogv1.NackDeliveries{DeliveryIds: id, Delay: durationpb.New(s.delay())}}
	default: // It is forgotten.
	}
	return s.send(req)
}
