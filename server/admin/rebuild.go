package admin

import (
	"encoding/json"
	"errors"
	"net/http"

	"runlog/projector"
)

// RebuildLine is one line of the answer to POST /projection/rebuild on the admin listener.
type RebuildLine struct {
	// Phase is fold, compare, done or failed.
	Phase projector.Phase `json:"phase"`
	// Folded and Served are log indexes: the last entry in the new projection, and the last in the
	// active one.
	Folded uint64 `json:"folded"`
	Served uint64 `json:"served"`
	// Compared counts runs. Differing counts runs with unequal snapshots, and Different names the
	// first of them.
	Compared  int      `json:"compared"`
	Differing int      `json:"differing"`
	Different []string `json:"different,omitempty"`
	// Error is the cause of a failed rebuild. The old projection stays active.
	Error string `json:"error,omitempty"`
}

const phaseFailed projector.Phase = "failed"

// rebuildProjection rebuilds the projection (PRJ-13) and reports progress as lines of JSON. The
// rebuild is cancelled when the request ends.
func (a *Admin) rebuildProjection(w http.ResponseWriter, r *http.Request) {
	lines := json.NewEncoder(w)
	begun := false
	send := func(g projector.Progress, err error) {
		line := RebuildLine{
			Phase: g.Phase, Folded: uint64(g.Position), Served: uint64(g.Target),
			Compared: g.Compared, Differing: g.Differing, Different: g.Different,
		}
		if err != nil {
			line.Phase, line.Error = phaseFailed, err.Error()
		}
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			begun = true
		}
		_ = lines.Encode(line) // If the client disconnects, the request's context ends.
		_ = http.NewResponseController(w).Flush()
	}
	a.opts.Logger.Info("projection rebuild started")
	g, err := a.opts.Projector.Rebuild(r.Context(), func(g projector.Progress) { send(g, nil) })
	switch {
	case err == nil:
		a.opts.Logger.Info("projection rebuilt", "runs", g.Compared, "different", g.Differing)
	case errors.Is(err, projector.ErrRebuilding) && !begun:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_ = lines.Encode(map[string]string{"error": err.Error()})
	default:
		a.opts.Logger.Warn("projection rebuild failed", "err", err)
		send(g, err)
	}
}
