// Package queue serves QueueService.
package queue
