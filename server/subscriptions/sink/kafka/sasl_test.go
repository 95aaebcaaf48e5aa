package kafka

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink/secret"
	"runlog/server/subscriptions/sink/sinktest"
)

// TestCredentialsBUS7 signs in by each mechanism. A password may come later.
func TestCredentialsBUS7(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "runlog", "pass:word"))
			dir := t.TempDir()
			s := open(t, &runlogv1.KafkaDelivery{Brokers: c.ListenAddrs(), SecretRef: "kafka"}, Options{Secrets: secret.Of(dir, ""), client: []kgo.Opt{
				kgo.MetadataMinAge(20 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
			}})
			wantError(t, refused(t, s), "kafka: ", "secret cluster/kafka: file does not exist")
			sinktest.Write(t, dir, "cluster/kafka", mechanism+":runlog:wrong\n")
			err := refused(t, s)
			wantError(t, err, "kafka: ")
			if strings.Contains(err.Error(), "wrong") {
				t.Errorf("the error has the password: %v", err)
			}
			sinktest.Write(t, dir, "cluster/kafka", mechanism+":runlog:pass:word\n")
			if err := sinktest.Send(t, s, sinktest.Event("run", 1, `{}`)); err != nil {
				t.Error(err)
			}
		})
	}
}

// refused makes an attempt that cannot succeed, without waiting for its timeout, and returns what
// the error would be then.
func refused(t *testing.T, s *Sink) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := sinktest.Begin(ctx, t, s, sinktest.Event("run", 1, `{}`)).Wait()
	if err == nil {
		t.Error("want an error")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.late()
	}
	return err
}

// TestTLSBUS7: a broker without TLS gets nothing from a subscription that has it.
func TestTLSBUS7(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	var requests atomic.Int32
	c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		return nil, nil, false
	})
	s := open(t, &runlogv1.KafkaDelivery{Brokers: c.ListenAddrs(), Tls: true}, Options{})
	wantError(t, refused(t, s), "kafka: ")
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests came in the clear", n)
	}
}

func TestMechanismBUS7(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", "is not one line"}, {"PLAIN", "is not one line"}, {"PLAIN:user", "is not one line"}, {"PLAIN::TOPSECRET", "is not one line"},
		{"PLAIN:user:", "is not one line"}, {"PLAIN:user:TOP\nSECRET", "is not one line"},
		{"plain:user:TOPSECRET", "another mechanism"}, {"TOPSECRET:user:pass", "another mechanism"}, {"GSSAPI:user:TOPSECRET", "another mechanism"},
	} {
		_, err := parseMechanism(tt.text)
		wantError(t, err, tt.want)
		if err != nil && strings.Contains(err.Error(), "TOP") {
			t.Errorf("the error has the secret: %v", err)
		}
	}
	for text, want := range map[string]string{"PLAIN:u:p": "PLAIN", "SCRAM-SHA-256:u:p:q\r\n": "SCRAM-SHA-256", "SCRAM-SHA-512:u:p\n": "SCRAM-SHA-512"} {
		if m, err := parseMechanism(text); err != nil || m.Name() != want {
			t.Errorf("%q: got %v, %v", text, m, err)
		}
	}
}
