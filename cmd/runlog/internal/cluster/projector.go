package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"
)

func (a *app) projectorCommand() *cobra.Command {
	var admin string
	rebuild := &cobra.Command{
		Use:   "rebuild",
		Short: "Rebuild the projection of a node from its log",
		Long: `Fold the whole log into a new projection beside the active one, compare their snapshots of each run, and
activate the new one. Appends, reads and watches go on. Ctrl-C cancels; the old projection stays active.`,
		Example: "  runlog projector rebuild\n  runlog projector rebuild --admin 10.0.0.7:7412 -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.rebuildProjection(cmd.Context(), admin) },
	}
	session.AdminFlag(rebuild, &admin)
	return session.Group(&cobra.Command{Use: "projector", Short: "Rebuild the projection of a node"}, rebuild)
}

// rebuildState is one line of the admin listener's answer.
type rebuildState struct {
	Phase     string   `json:"phase"`
	Folded    uint64   `json:"folded"`
	Served    uint64   `json:"served"`
	Compared  int      `json:"compared"`
	Differing int      `json:"differing"`
	Different []string `json:"different"`
	Error     string   `json:"error"`
}

func (a *app) rebuildProjection(ctx context.Context, admin string) error {
	req, err := a.AdminRequest(ctx, http.MethodPost, admin, "/projection/rebuild", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	switch {
	case ctx.Err() != nil:
		return output.Errorf(output.ExitInterrupted, "rebuild cancelled")
	case err != nil:
		return output.Errorf(output.ExitUnavailable, "admin listener %s cannot be reached; name another with --admin", admin)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict {
		if text, err := io.ReadAll(resp.Body); err == nil {
			if e := session.AdminError(text); e != nil {
				return e
			}
		}
		return output.Errorf(output.ExitFailed, "%s answered %s; name the admin listener with --admin", admin, resp.Status)
	}
	last, err := a.followRebuild(resp.Body)
	switch {
	case ctx.Err() != nil:
		return output.Errorf(output.ExitInterrupted, "rebuild cancelled; the old projection stays active")
	case resp.StatusCode == http.StatusConflict:
		return output.Errorf(output.ExitUnavailable, "another rebuild is running; wait for its end")
	case err != nil:
		return output.Errorf(output.ExitFailed, "%s", err.Error())
	case last.Differing > 0 && a.Format != output.JSON:
		_, err = fmt.Fprintf(a.Stdout, "Rebuilt: %s compared, %s different before: %s\n", output.Plural(last.Compared, "run"), output.Number(last.Differing), strings.Join(last.Different, " "))
	case a.Format != output.JSON:
		_, err = fmt.Fprintf(a.Stdout, "Rebuilt: %s compared, none different\n", output.Plural(last.Compared, "run"))
	}
	return err
}

// followRebuild shows the progress of a rebuild, and returns its last line or its error.
func (a *app) followRebuild(lines io.Reader) (last rebuildState, err error) {
	bar := a.NewProgress(0, time.Now())
	defer bar.Clear()
	scan := bufio.NewScanner(lines)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		last = rebuildState{}
		if err := json.Unmarshal(scan.Bytes(), &last); err != nil {
			return last, fmt.Errorf("decode progress of the rebuild: %w", err)
		}
		switch {
		case a.Format == output.JSON:
			fmt.Fprintf(a.Stdout, "%s\n", scan.Bytes())
		case a.StderrWidth > 0:
			bar.Say(last.text())
		}
	}
	switch {
	case last.Error != "":
		return last, errors.New(last.Error)
	case last.Phase != "done":
		return last, errors.New("the node stopped before the rebuild was complete; the old projection stays active")
	}
	return last, scan.Err()
}

func (s *rebuildState) text() string {
	if s.Phase == "fold" {
		return fmt.Sprintf("folding  %s of %s log entries", output.Number(s.Folded), output.Number(s.Served))
	}
	return fmt.Sprintf("comparing  %s, %s different", output.Plural(s.Compared, "run"), output.Number(s.Differing))
}
