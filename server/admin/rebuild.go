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
	// Folded and Served are log indexes: up to where the new projection is, and the one that is
	// served.
	Folded uint64 `json:"folded"`
	Served uint64 `json:"served"`
	// Compared counts runs, and Differing those whose snapshots were not equal; Different names the
	// first of them.
	Compared  int      `json:"compared"`
	Differing int      `json:"differing"`
	Different []string `json:"different,omitempty"`
	// Error says why a rebuild failed. What was served before is served still.
	Error string `json:"error,omitempty"`
}

const phaseFailed projector.Phase = "failed"

// rebuildProjection rebuilds the projection (PRJ-13) and tells how far it is, as lines of JSON. It
// ends with the request.
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
		_ = lines.Encode(line) // a reader who has gone ends the request's context
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
