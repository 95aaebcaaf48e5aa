package bench

import (
	"context"
	"errors"
	"time"

	"runlog/bench/bus"
	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
)

// The subscriptions of append-subscribed.
const (
	idleSubscriptions = 100
	busySubscriptions = 10
)

// openConsume prepares consume: one consumer reads stored events, and acknowledges them. One that
// has read all begins again.
func openConsume(b *bed) (*work, error) {
	subscriber, ok := b.target.(target.Subscriber)
	if !ok {
		return nil, errNoSubscriptions
	}
	return consuming(b, subscriber), nil
}

func consuming(b *bed, from target.Subscriber) *work {
	c := load.NewConsuming(b.session, b.target, from, b.w.Runs, b.w.Stored)
	return &work{prepare: c.Prepare, release: c.Close, lanes: []load.Lane{load.Caller(c.Next).Lane()}}
}

// openWebhook prepares webhook.
func openWebhook(b *bed) (*work, error) {
	endpoint, err := bus.NewWebhook()
	if err != nil {
		return nil, err
	}
	return delivering(b, endpoint)
}

// openSink prepares sink-nats and sink-kafka.
func openSink(b *bed) (*work, error) {
	receivers, ok := b.target.(target.Receivers)
	if !ok {
		return nil, errNoReceivers
	}
	r, err := receivers.OpenReceiver(context.Background(), b.w.Name)
	if err != nil {
		return nil, err
	}
	return delivering(b, r)
}

// delivering consumes what reaches a receiver, and closes it.
func delivering(b *bed, to target.Receiver) (*work, error) {
	from, ok := b.target.(target.Bus)
	if !ok {
		return nil, errors.Join(errNoSubscriptions, to.Close())
	}
	w := consuming(b, &bus.Sinks{Bus: from, Receiver: to, InFlight: b.w.InFlight})
	end := w.release
	w.release = func() error { return errors.Join(end(), to.Close()) }
	return w, nil
}

// openDeliveryLag prepares delivery-lag.
func openDeliveryLag(b *bed) (*work, error) {
	if _, ok := b.target.(target.Bus); !ok {
		return nil, errNoSubscriptions
	}
	w, err := openHistories(b)
	if err == nil {
		w.measure = measureDeliveryLag
	}
	return w, err
}

// measureDeliveryLag measures the highest rate of appends without a subscription, and then how late
// one consumer gets the events at half of it. The result is that of the second loop.
func measureDeliveryLag(ctx context.Context, o *Options, b *bed, w *work) (_ *report.Result, err error) {
	l := o.newLoop(&b.w)
	if err := w.warm(ctx, l); err != nil {
		return nil, err
	}
	highest, err := o.drive(ctx, b, w, l)
	if err != nil {
		return nil, err
	}
	lag, err := bus.OpenLag(ctx, b.target.(target.Bus))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lag.Close()) }()
	l = o.newLoop(&b.w)
	l.Rate = highest.CallsPerSecond * lagShare
	lag.Measure(time.Now().Add(l.WarmUp), l.Duration)
	res, err := o.drive(ctx, b, w, l)
	if err != nil {
		return nil, err
	}
	if res.Lag, err = lag.Await(ctx, res.Acknowledged, o.Grace); err != nil {
		return nil, err
	}
	res.Lag.HighestRate, res.Lag.Rate = highest.CallsPerSecond, l.Rate
	res.AddErrors(highest.Errors, highest.Failure)
	res.Acknowledged += highest.Acknowledged
	return res, nil
}

// openSubscribed prepares append-subscribed.
func openSubscribed(b *bed) (*work, error) {
	return openBeside(b, func(ctx context.Context, from target.Bus) (bus.Beside, error) {
		return bus.OpenCrowd(ctx, from, idleSubscriptions, busySubscriptions, load.Tenants())
	})
}

// openDeadSink prepares append-dead-sink.
func openDeadSink(b *bed) (*work, error) {
	return openBeside(b, func(ctx context.Context, from target.Bus) (bus.Beside, error) { return bus.OpenDead(ctx, from) })
}

// openBeside prepares append-unary beside subscriptions, which have to do their part.
func openBeside(b *bed, open func(context.Context, target.Bus) (bus.Beside, error)) (*work, error) {
	from, ok := b.target.(target.Bus)
	if !ok {
		return nil, errNoSubscriptions
	}
	w, err := openHistories(b)
	if err != nil {
		return nil, err
	}
	w.measure = func(ctx context.Context, o *Options, b *bed, w *work) (_ *report.Result, err error) {
		beside, err := open(ctx, from)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, beside.Close()) }()
		l := o.newLoop(&b.w)
		if err := w.warm(ctx, l); err != nil {
			return nil, err
		}
		res, err := o.drive(ctx, b, w, l)
		if err != nil {
			return nil, err
		}
		res.Reads, err = beside.Result(ctx, o.Grace)
		return res, err
	}
	return w, nil
}
