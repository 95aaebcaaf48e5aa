// Package sink opens what a subscription delivers its events to: a webhook, NATS JetStream or
// Kafka (BUS-2, BUS-7). It also checks the settings of a delivery.
//
//	cloudevent     the form of an event
//	sink           Check, Open
//	  webhook, nats, kafka    one sink each
//	  attempt                 one try: its time, its goroutine, its errors
//	  secret                  the files that settings refer to
//
// A sink makes one attempt for each Send. Its caller repeats failed ones, keeps the order of each
// run, and bounds how many are under way (BUS-3, BUS-4). So a sink has no queue, and a slow or dead
// endpoint costs its own subscription only (BUS-9).
package sink
