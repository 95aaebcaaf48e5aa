package sim

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"runlog/audit/policy"
	"runlog/audit/proof"
	"runlog/server/cosign"
)

const (
	// cosignerHost is the host of a witness of the cluster's checkpoints (TR-4).
	cosignerHost = "witness"
	// checkpointEvery is the time between checkpoints.
	checkpointEvery = 4 * time.Second
)

// cosigner is a model of a witness, which never forgets. It fails now and then: before it has kept
// a checkpoint, or so that its signature does not arrive.
//
// What it must never see is a second history of a log, whatever happens to the nodes: it is shown
// checkpoints only that the cluster cannot lose. And no leader may take the witness of its
// successor for one with another history.
type cosigner struct {
	world  *world
	signer *proof.Cosigner
	server http.Server
	done   chan struct{} // closed when the server has ended; nil: it was never started

	mu   sync.Mutex
	rng  *rand.Rand
	kept map[string]*proof.KeptCheckpoint // by origin
}

func newCosigner(w *world) *cosigner {
	signer, err := proof.NewCosigner("witness.example", [32]byte{1})
	if err != nil {
		panic(err) // The name is good.
	}
	return &cosigner{world: w, signer: signer, rng: rand.New(rand.NewPCG(w.opts.Seed, 0x7769746e)), kept: map[string]*proof.KeptCheckpoint{}}
}

// endpoint is how nodes know the witness.
func (c *cosigner) endpoint() policy.Endpoint {
	return policy.Endpoint{Name: "witness", Key: c.signer.Key(), URL: "http://" + cosignerHost}
}

func (c *cosigner) start() error {
	l, err := c.world.net.Listen("tcp", cosignerHost+":80")
	if err != nil {
		return err
	}
	c.server.Handler, c.done = c, make(chan struct{})
	go func() {
		defer close(c.done)
		if err := c.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			c.world.fault("witness: %v", err)
		}
	}()
	return nil
}

func (c *cosigner) stop() {
	_ = c.server.Close()
	if c.done != nil {
		<-c.done
	}
}

// ServeHTTP is add-checkpoint of C2SP tlog-witness.
func (c *cosigner) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // The node was cut off.
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	const failures = 8
	fate := c.rng.IntN(failures)
	if fate == 0 {
		http.Error(rw, "down", http.StatusServiceUnavailable)
		return
	}
	status, text := c.add(string(body))
	if fate == 1 {
		panic(http.ErrAbortHandler)
	}
	if status == http.StatusConflict {
		rw.Header().Set("Content-Type", "text/x.tlog.size")
	}
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, text)
}

func (c *cosigner) add(body string) (status int, text string) {
	asked, err := proof.ParseConsistency(body)
	if err != nil {
		c.world.fault("TR-4: a witness was sent what is no request: %v", err)
		return http.StatusBadRequest, err.Error()
	}
	next, _, err := proof.PeekCheckpoint(asked.Note)
	if err != nil {
		c.world.fault("TR-4: a witness was sent what is no checkpoint: %v", err)
		return http.StatusBadRequest, err.Error()
	}
	kept := c.kept[next.Origin()]
	if kept == nil {
		kept = &proof.KeptCheckpoint{}
	}
	if asked.From != kept.Size {
		return http.StatusConflict, strconv.FormatUint(kept.Size, 10) + "\n"
	}
	if err := proof.CheckConsistency(&kept.Checkpoint, next, asked.Hashes); err != nil {
		c.world.fault("TR-4: a witness was shown two histories: %v\n%s\n%s", err, kept.Note, asked.Note)
		return http.StatusUnprocessableEntity, err.Error()
	}
	line, err := c.signer.Cosign(asked.Note, time.Now())
	if err != nil {
		c.world.fault("witness: %v", err)
		return http.StatusInternalServerError, err.Error()
	}
	c.kept[next.Origin()] = &proof.KeptCheckpoint{Checkpoint: *next, Note: asked.Note}
	c.world.seen.count(Cosigned)
	return http.StatusOK, line
}

// judge requires that no node has said that the witness, which has one history, has another.
func (c *cosigner) judge() {
	if n := c.world.seen.of(cosign.AlertConflict); n > 0 {
		c.world.fault("TR-4: nodes have raised %s %d times", cosign.AlertConflict, n)
	}
}
