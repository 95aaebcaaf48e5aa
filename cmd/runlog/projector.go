package main

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

	"github.com/spf13/cobra"
)

func (a *app) projectorCommand() *cobra.Command {
	var admin string
	rebuild := &cobra.Command{
		Use:   "rebuild",
		Short: "Fold the log again and serve the result",
		Long: `Fold the whole log into a new projection beside the one that is served, compare their snapshots of each
run, and serve the new one. Appends, reads and watches go on. Ctrl-C gives it up and leaves all as it was.`,
		Example: "  runlog projector rebuild\n  runlog projector rebuild --admin 10.0.0.7:7412 -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.rebuildProjection(cmd.Context(), admin) },
	}
	rebuild.Flags().StringVar(&admin, "admin", "127.0.0.1:7412", "address of the node's admin listener")
	cmd := &cobra.Command{
		Use:   "projector",
		Short: "Look after the projection of a node",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(rebuild)
	return cmd
}

// rebuildState is a line of the admin listener's answer.
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+"/projection/rebuild", nil)
	if err != nil {
		return usageError("--admin %q is not an address such as 127.0.0.1:7412", admin)
	}
	resp, err := http.DefaultClient.Do(req)
	switch {
	case ctx.Err() != nil:
		return &exitError{exitInterrupted, "given up"}
	case err != nil:
		return &exitError{exitUnavailable, fmt.Sprintf("admin listener %s cannot be reached; name another with --admin", admin)}
	}
	defer resp.Body.Close()
	last, err := a.followRebuild(resp.Body)
	switch {
	case ctx.Err() != nil:
		return &exitError{exitInterrupted, "given up; what was served is served still"}
	case resp.StatusCode == http.StatusConflict:
		return &exitError{exitUnavailable, "a rebuild is under way already"}
	case resp.StatusCode != http.StatusOK:
		return &exitError{exitFailed, fmt.Sprintf("%s answered %s; is it the admin listener?", admin, resp.Status)}
	case err != nil:
		return &exitError{exitFailed, err.Error()}
	case last.Differing > 0 && a.format != formatJSON:
		_, err = fmt.Fprintf(a.stdout, "Rebuilt: %s compared, %s different before: %s\n", plural(last.Compared, "run"), number(last.Differing), strings.Join(last.Different, " "))
	case a.format != formatJSON:
		_, err = fmt.Fprintf(a.stdout, "Rebuilt: %s compared, none different\n", plural(last.Compared, "run"))
	}
	return err
}

// followRebuild shows how far a rebuild is, and returns its last line, or why it failed.
func (a *app) followRebuild(lines io.Reader) (last rebuildState, err error) {
	bar := &progress{w: a.stderr, width: a.stderrWidth, started: time.Now()}
	defer bar.clear()
	scan := bufio.NewScanner(lines)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		last = rebuildState{}
		if err := json.Unmarshal(scan.Bytes(), &last); err != nil {
			return last, fmt.Errorf("the answer is not a rebuild's: %w", err)
		}
		switch {
		case a.format == formatJSON:
			fmt.Fprintf(a.stdout, "%s\n", scan.Bytes())
		case a.stderrWidth > 0:
			bar.say(last.text())
		}
	}
	switch {
	case last.Error != "":
		return last, errors.New(last.Error)
	case last.Phase != "done":
		return last, errors.New("the node ended before the rebuild did; what was served is served still")
	}
	return last, scan.Err()
}

func (s *rebuildState) text() string {
	if s.Phase == "fold" {
		return fmt.Sprintf("folding  %s of %s log entries", number(s.Folded), number(s.Served))
	}
	return fmt.Sprintf("comparing  %s, %s different", plural(s.Compared, "run"), number(s.Differing))
}
