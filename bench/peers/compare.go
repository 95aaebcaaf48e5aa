package main

import "runlog/bench/report"

// The workloads that the goals are about.
var (
	batches       = report.Workload{Name: "append-batch", Callers: 16, Batch: 100}
	streamBatches = report.Workload{Name: "append-stream", Callers: 16, InFlight: 1, Batch: 100}
	streams       = report.Workload{Name: "append-stream", Callers: 4, InFlight: 64, Batch: 1}
)

// gathered is one event a call, through a client that gathers the calls of its callers.
var gathered = report.Workload{Name: "append-gather", Callers: 256, Batch: 1}

// queue is one run a call, from its request to its start.
var queue = report.Workload{Name: report.Queue, Callers: 64, Batch: 1}

// The workloads about subscriptions.
var (
	consume   = storedEvents(report.Consume, 0)
	sinkNATS  = storedEvents(report.SinkNATS, 1000)
	sinkKafka = storedEvents(report.SinkKafka, 1000)
)

// storedEvents is a workload on 200,000 of them.
func storedEvents(name string, inFlight int) report.Workload {
	return report.Workload{Name: name, Callers: 1, Batch: 1, InFlight: inFlight, Runs: 1000, Stored: 200_000}
}

func unary(callers int) report.Workload {
	return report.Workload{Name: "append-unary", Callers: callers, Batch: 1}
}

// usualWorkloads are those that the goals are about, as the command line has them.
func usualWorkloads(nodes int) []string {
	if nodes > 1 {
		return []string{"append-unary:callers=64", "append-unary:callers=256", "append-batch:callers=16:batch=100"}
	}
	return []string{
		"append-unary:callers=1", "append-unary:callers=64", "append-unary:callers=256", "append-batch:callers=16:batch=100",
		"append-stream:callers=16:in-flight=1:batch=100", "append-stream:callers=4:in-flight=64",
		"append-gather:callers=256", "queue:callers=64",
		report.Consume, report.SinkNATS, report.SinkKafka,
	}
}

// goals are what runlog means to reach next to the others; each is met by the median of the rounds.
func goals(nodes int) []report.Goal {
	if nodes > 1 {
		return clusterGoals()
	}
	return serverGoals()
}

// serverGoals are those of one node next to one server.
func serverGoals() []report.Goal {
	return []report.Goal{
		{Measure: "unary, 1 client: p50 ÷ postgres", Figure: report.RatioOf(report.P50, runlog(unary(1)), of("postgres", unary(1))), Must: 1.1, Stretch: 1, AtMost: true},
		events("unary, 64 clients: events ÷ postgres", runlog(unary(64)), of("postgres", unary(64)), 2.5, 4),
		events("unary, 64 clients: events ÷ etcd", runlog(unary(64)), of("etcd", unary(64)), 2, 0),
		events("unary, 64 clients: events ÷ nats", runlog(unary(64)), of("nats", unary(64)), 3, 0),
		events("unary, 256 clients: events ÷ gRPC echoes", runlog(unary(256)), report.LimitOf(report.GRPCEcho, 256), 0.6, 0.75),
		events("unary, 256 clients: events ÷ postgres", runlog(unary(256)), of("postgres", unary(256)), 3.5, 0),
		events("batches of 100, 16 clients: events ÷ postgres", runlog(batches), of("postgres", batches), 4, 0),
		events("batches of 100, 16 clients: events ÷ etcd", runlog(batches), of("etcd", batches), 6, 0),
		events("batches of 100, 16 clients: events ÷ nats", runlog(batches), of("nats", batches), 10, 0),
		events("streamed batches of 100, 16 clients: events ÷ postgres", runlog(streamBatches), of("postgres", batches), 4, 0),
		events("streamed batches of 100, 16 clients: events ÷ etcd", runlog(streamBatches), of("etcd", batches), 6, 0),
		events("streamed batches of 100, 16 clients: events ÷ nats", runlog(streamBatches), of("nats", batches), 10, 0),
		events("single events on streams, 256 in flight: events ÷ unary", runlog(streams), runlog(unary(256)), 1.5, 3),
		events("gathered single events, 256 clients: events ÷ unary", runlog(gathered), runlog(unary(256)), 2, 0),
		events("gathered single events, 256 clients: events ÷ single events on streams", runlog(gathered), runlog(streams), 0.9, 0),
		events("gathered single events, 256 clients: events ÷ nats, 64 clients", runlog(gathered), of("nats", unary(64)), 3, 0),
		events("gathered single events, 256 clients: events ÷ nats, 256 clients", runlog(gathered), of("nats", unary(256)), 3, 0),
		events("queue, 64 workers: runs ÷ River on postgres", runlog(queue), of("postgres", queue), 2, 0),
		events("queue, 64 workers: runs ÷ nats", runlog(queue), of("nats", queue), 2, 0),
		events("one pull consumer: events ÷ nats", runlog(consume), of("nats", consume), 2, 0),
		rate("events to a sink of NATS JetStream", runlog(sinkNATS), sinkMust),
		rate("events to a sink of Kafka", runlog(sinkKafka), sinkMust),
	}
}

// clusterMust is how many times etcd's transactions a cluster's appends are to be.
const clusterMust = 5

// clusterGoals are those of a cluster next to one of etcd with as many members. A transaction of
// etcd's append-unary has one event.
func clusterGoals() []report.Goal {
	return []report.Goal{
		events("batches of 100, 16 clients: events ÷ etcd's transactions of one event, 64 clients", runlog(batches), of("etcd", unary(64)), clusterMust, 0),
		events("batches of 100, 16 clients: events ÷ etcd's transactions of one event, 256 clients", runlog(batches), of("etcd", unary(256)), clusterMust, 0),
		events("unary, 64 clients: events ÷ etcd's transactions of one event, 64 clients", runlog(unary(64)), of("etcd", unary(64)), clusterMust, 0),
		events("unary, 256 clients: events ÷ etcd's transactions of one event, 256 clients", runlog(unary(256)), of("etcd", unary(256)), clusterMust, 0),
		events("batches of 100, 16 clients: events ÷ etcd's events in transactions of 100", runlog(batches), of("etcd", batches), 0, 0),
	}
}

// events is a goal about events a second: those of a divided by those of b.
func events(measure string, a, b report.Of, must, stretch float64) report.Goal {
	return report.Goal{Measure: measure, Figure: report.RatioOf(report.Events, a, b), Must: must, Stretch: stretch}
}

// sinkMust is how many events a second reach a sink.
const sinkMust = 50_000

// rate is a goal about events a second.
func rate(measure string, a report.Of, must float64) report.Goal {
	return report.Goal{Measure: measure, Figure: report.FigureOf(report.Events, a, report.Median), Must: must, PerSecond: true}
}

func of(system string, w report.Workload) report.Of { return report.SystemOf(system, w) }

func runlog(w report.Workload) report.Of { return of("runlog", w) }
