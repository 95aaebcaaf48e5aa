package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/code"

	"runlog/proto/contract"
)

// errorsCommand explains what the server's reasons mean: the same table that docs/errors.md shows.
func (a *app) errorsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "errors",
		Short: "List the reasons that errors have",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.printReasons(contract.Reasons())
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:               "lookup REASON",
		Short:             "Tell what a reason means and what to do",
		Example:           "  runlog errors lookup SEQUENCE_CONFLICT",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(reasonNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, r := range contract.Reasons() {
				if strings.EqualFold(string(r.Reason), args[0]) {
					return a.printReason(r)
				}
			}
			return usageError("no reason is called %q; \"runlog errors\" lists them", args[0])
		},
	})
	return cmd
}

func reasonNames() []cobra.Completion {
	var names []cobra.Completion
	for _, r := range contract.Reasons() {
		names = append(names, cobra.Completion(r.Reason))
	}
	return names
}

// reasonRow is a reason as JSON shows it.
type reasonRow struct {
	Reason string `json:"reason"`
	GRPC   string `json:"grpcCode"`
	HTTP   int    `json:"httpStatus"`
	Stored string `json:"stored"`
	Retry  string `json:"retry"`
	Help   string `json:"help"`
	// Reserved says that no call of this version ends with the reason.
	Reserved bool `json:"reserved"`
}

func rowOf(r contract.ReasonInfo) reasonRow {
	return reasonRow{string(r.Reason), grpcName(r), r.HTTP, string(r.Stored), r.Retry, r.Help, r.Reason.Reserved()}
}

func (a *app) printReasons(rows []contract.ReasonInfo) error {
	each := func(yield func(contract.ReasonInfo, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
	return list(a, each, 0,
		func(r contract.ReasonInfo) ([]byte, error) { return json.Marshal(rowOf(r)) },
		func(r contract.ReasonInfo) []string {
			return []string{string(r.Reason), grpcName(r), strconv.Itoa(r.HTTP), string(r.Stored), r.Retry}
		},
		"REASON", "GRPC", "HTTP", "STORED", "RETRY AS IT IS")
}

func (a *app) printReason(r contract.ReasonInfo) error {
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(rowOf(r))
	}
	note := ""
	if r.Reason.Reserved() {
		note = "\nNo call of this version ends with it.\n"
	}
	_, err := fmt.Fprintf(a.stdout, "%s\n  gRPC    %s\n  HTTP    %d\n  stored  %s\n  retry   %s\n\n%s\n%s",
		r.Reason, grpcName(r), r.HTTP, r.Stored, r.Retry, r.Help, note)
	return err
}

// grpcName spells a gRPC code as its specification does.
func grpcName(r contract.ReasonInfo) string { return code.Code(r.Code).String() }
