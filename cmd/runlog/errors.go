package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/code"

	"runlog/proto/contract"
)

// errorsCommand explains the reasons of the server's errors, with the table of docs/errors.md.
func errorsCommand(s *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "errors",
		Short: "List the reasons of errors",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return printReasons(&s.Output, contract.Reasons())
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:               "lookup REASON",
		Short:             "Explain a reason and what to do",
		Example:           "  runlog errors lookup SEQUENCE_CONFLICT",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(reasonNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, r := range contract.Reasons() {
				if strings.EqualFold(string(r.Reason), args[0]) {
					return printReason(&s.Output, r)
				}
			}
			return output.UsageError("unknown reason %q; \"runlog errors\" lists them", args[0])
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
	// Reserved is true if no call of this version fails with the reason.
	Reserved bool `json:"reserved"`
}

func rowOf(r contract.ReasonInfo) reasonRow {
	return reasonRow{string(r.Reason), grpcName(r), r.HTTP, string(r.Stored), r.Retry, r.Help, r.Reason.Reserved()}
}

func printReasons(o *output.Output, rows []contract.ReasonInfo) error {
	return output.List(o, output.All(rows), 0,
		func(r contract.ReasonInfo) ([]byte, error) { return json.Marshal(rowOf(r)) },
		func(r contract.ReasonInfo) []string {
			return []string{string(r.Reason), grpcName(r), strconv.Itoa(r.HTTP), string(r.Stored), r.Retry}
		},
		"REASON", "GRPC", "HTTP", "STORED", "RETRY AS IT IS")
}

func printReason(o *output.Output, r contract.ReasonInfo) error {
	if o.Format == output.JSON {
		return o.Object(rowOf(r))
	}
	note := ""
	if r.Reason.Reserved() {
		note = "\nNo call of this version fails with it.\n"
	}
	_, err := fmt.Fprintf(o.Stdout, "%s\n  gRPC    %s\n  HTTP    %d\n  stored  %s\n  retry   %s\n\n%s\n%s",
		r.Reason, grpcName(r), r.HTTP, r.Stored, r.Retry, r.Help, note)
	return err
}

// grpcName spells a gRPC code as its specification does.
func grpcName(r contract.ReasonInfo) string { return code.Code(r.Code).String() }
