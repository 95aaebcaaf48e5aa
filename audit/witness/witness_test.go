package witness

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"runlog/audit/proof"
)

// TestOneHistoryTR4: whatever it is asked, by a log that has two histories and signs both, a
// witness signs checkpoints of one of them alone, each of which continues the one before, also over
// its restarts.
func TestOneHistoryTR4(t *testing.T) {
	dir := t.TempDir()
	number := 0
	rapid.Check(t, func(t *rapid.T) {
		number++
		path := filepath.Join(dir, "state-"+strings.Repeat("x", number))
		opts := optionsOf(t, path)
		w, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = w.Close() }()
		const most = 40
		same := rapid.Int64Range(0, most).Draw(t, "same")
		both := []*history{newHistory(t, most, same, 'a'), newHistory(t, most, same, 'b')}
		var size int64 // that is kept
		var chosen *history
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if w, err = New(opts); err != nil {
					t.Fatal(err)
				}
			}
			h := both[rapid.IntRange(0, 1).Draw(t, "history")]
			from, to := rapid.OneOf(rapid.Just(size), rapid.Int64Range(0, most)).Draw(t, "from"), rapid.Int64Range(0, most).Draw(t, "to")
			line, err := w.Add(h.body(from, to))
			continues := size <= same || chosen == nil || chosen == h
			switch {
			case from > to:
				refused(t, err, http.StatusBadRequest)
			case from != size:
				refused(t, err, http.StatusConflict)
			case !continues:
				refused(t, err, http.StatusUnprocessableEntity)
			case err != nil:
				t.Fatalf("from %d to %d: %v", from, to, err)
			default:
				if found, err := proof.Cosignatures(h.note(to)+line, opts.Cosigner.Key()); err != nil || len(found) != 1 || !found[0].At.Equal(now) {
					t.Fatalf("it answers %q: %+v, %v", line, found, err)
				}
				if size = to; size > same {
					chosen = h
				}
			}
		}
	})
}

func refused(t fataler, err error, status int) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Status != status {
		t.Fatal(err, "is not a refusal with", status)
	}
}

// TestRefusesTR4: what is not signed by a key of a cluster that is followed, or is no checkpoint,
// is refused, and nothing is kept of it.
func TestRefusesTR4(t *testing.T) {
	w := newWitness(t)
	h := newHistory(t, 20, 20, 'a')
	stranger := *h
	stranger.signer = signerOf(t, cluster, 2)
	foreign, err := signerOf(t, [16]byte{8}, 1).SignCheckpoint(&proof.Checkpoint{Cluster: [16]byte{8}})
	if err != nil {
		t.Fatal(err)
	}
	unsigned, _, _ := strings.Cut(h.note(3), "\n\n")
	// The example of C2SP tlog-checkpoint.
	const ofOthers = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n" +
		"— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
	for body, status := range map[string]int{
		"":                            http.StatusBadRequest,
		"old 0\n\n":                   http.StatusBadRequest,
		"old 0\n\nno checkpoint":      http.StatusBadRequest,
		h.note(3):                     http.StatusBadRequest,
		stranger.body(0, 3):           http.StatusForbidden,
		"old 0\n\n" + foreign:         http.StatusNotFound,
		"old 0\n\n" + ofOthers:        http.StatusNotFound,
		h.body(5, 3):                  http.StatusBadRequest,
		h.body(2, 3):                  http.StatusConflict,
		"old 0\nAAAA\n\n" + h.note(3): http.StatusBadRequest,
		(&proof.Consistency{Hashes: []tlog.Hash{{1}}, Note: h.note(3)}).Text(): http.StatusUnprocessableEntity,
		strings.Replace(h.body(0, 3), "position 3", "position 4", 1):           http.StatusForbidden,
		"old 0\n\n" + unsigned + "\n\n":                                        http.StatusForbidden,
	} {
		_, err := w.Add(body)
		refused(t, err, status)
	}
	wrong, err := h.signer.SignCheckpoint(&proof.Checkpoint{Cluster: cluster, Root: tlog.Hash{1}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Add("old 0\n\n" + wrong)
	refused(t, err, http.StatusUnprocessableEntity)
	if len(w.kept) != 0 {
		t.Errorf("%d checkpoints are kept", len(w.kept))
	}
	// A note with signatures of others is signed like any other.
	if _, err := w.Add(h.body(0, 3) + "— other AAAAAAAAAAAA\n"); err != nil {
		t.Error(err)
	}
}

// TestKeptBeforeSignedTR4: a checkpoint is on stable storage before its signature leaves: if it
// cannot be kept, there is none, and the one before stays.
func TestKeptBeforeSignedTR4(t *testing.T) {
	w := newWitness(t)
	h, other := newHistory(t, 20, 5, 'a'), newHistory(t, 20, 5, 'b')
	if _, err := w.Add(h.body(0, 5)); err != nil {
		t.Fatal(err)
	}
	durable := w.write
	w.write = func(string, []byte) error { return os.ErrPermission }
	if line, err := w.Add(h.body(5, 9)); !errors.Is(err, os.ErrPermission) || line != "" {
		t.Errorf("%q, %v", line, err)
	}
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, addPath, strings.NewReader(h.body(5, 9))))
	if answer.Code != http.StatusInternalServerError || strings.Contains(answer.Body.String(), "—") {
		t.Errorf("it answers %d %s", answer.Code, answer.Body)
	}
	var order []string
	w.write = func(path string, text []byte) error {
		order = append(order, "kept")
		return durable(path, text)
	}
	w.opts.Clock = func() time.Time { order = append(order, "signed"); return now }
	// Nothing of the history that was not kept binds it.
	if _, err := w.Add(other.body(5, 9)); err != nil || strings.Join(order, " ") != "kept signed" {
		t.Errorf("%v: %v", order, err)
	}
}

// TestRacingHistoriesTR4: of two histories that are sent at the same time, one is signed.
func TestRacingHistoriesTR4(t *testing.T) {
	w := newWitness(t)
	var sends sync.WaitGroup
	signed := make(chan byte, 8)
	for i := range 8 {
		name := "ab"[i%2]
		h := newHistory(t, 9, 5, name)
		sends.Go(func() {
			if _, err := w.Add(h.body(0, 9)); err == nil {
				signed <- name
			}
		})
	}
	sends.Wait()
	close(signed)
	first := <-signed
	for name := range signed {
		if name != first {
			t.Fatal("both histories are signed")
		}
	}
}

// TestStateTR4: a state has one process at a time, and is read as it was written or not at all.
func TestStateTR4(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	w := newWitness(t, func(o *Options) { o.State = path })
	if _, err := w.Add(newHistory(t, 9, 5, 'a').body(0, 9)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(w.opts); !errors.Is(err, ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseKept(text); err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range text {
		changed := append([]byte{}, text...)
		changed[i] ^= 1
		if got, err := parseKept(changed); err == nil && len(got) > 0 {
			for _, c := range got {
				if _, _, err := proof.OpenCheckpoint(c.Note, w.opts.Logs...); err == nil {
					t.Fatalf("byte %d changed: %+v", i, got)
				}
			}
		}
	}
	damaged := optionsOf(t, filepath.Join(t.TempDir(), "state"))
	if err := os.WriteFile(damaged.State, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(damaged); !errors.Is(err, ErrState) {
		t.Errorf("half a state: %v", err)
	}
	for _, key := range []string{"", "x", w.opts.Cosigner.Key().String()} {
		damaged.Logs = []string{key}
		if _, err := New(damaged); !errors.Is(err, proof.ErrKey) {
			t.Errorf("the key %q of a log: %v", key, err)
		}
	}
}

// FuzzAddTR4: whatever it is sent, a witness signs what continues its checkpoint or nothing.
func FuzzAddTR4(f *testing.F) {
	h := newHistory(f, 20, 20, 'a')
	f.Add(h.body(0, 5))
	f.Add(h.body(5, 9))
	f.Add("old 5\n\nx\n")
	w := newWitness(f)
	if _, err := w.Add(h.body(0, 5)); err != nil {
		f.Fatal(err)
	}
	origin := h.note(5)[:40]
	f.Fuzz(func(t *testing.T, body string) {
		line, err := w.Add(body)
		var r *Refusal
		if err != nil && !errors.As(err, &r) {
			t.Fatal(err)
		}
		if err == nil && (line == "" || !strings.Contains(body, origin)) {
			t.Fatalf("%q is signed", body)
		}
	})
}

// FuzzParseKeptTR4: a state is written one way only.
func FuzzParseKeptTR4(f *testing.F) {
	k := kept{}
	note := newHistory(f, 5, 5, 'a').note(5)
	c, _, err := proof.PeekCheckpoint(note)
	if err != nil {
		f.Fatal(err)
	}
	text, err := k.with(c.Origin(), proof.KeptCheckpoint{Checkpoint: *c, Note: note}).text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":"runlog witness state 1","logs":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := parseKept(text)
		if err != nil {
			if !errors.Is(err, ErrState) {
				t.Errorf("%v", err)
			}
			return
		}
		if again, err := k.text(); err != nil || string(again) != string(text) {
			t.Errorf("%q is read as %q, %v", text, again, err)
		}
	})
}
