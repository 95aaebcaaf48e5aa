package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"runlog/server/peer"
)

// defaultCertDays is how long a node's certificate is valid.
const defaultCertDays = 365

func (a *app) clusterCertsCommand() *cobra.Command {
	var dir string
	var days int
	cmd := &cobra.Command{
		Use:   "certs --dir DIR NODE...",
		Short: "Make certificates for the nodes of a cluster",
		Long: `Make a certificate and a key for each node, and the cluster's certificate authority where DIR has none.
Nothing is overwritten. Every node needs ca.crt and its own two files, and reads them again when they change;
ca.key makes members of the cluster, and no node needs it: keep it where none runs.`,
		Example: "  runlog cluster certs --dir certs n1 n2 n3\n  runlog cluster certs --dir certs --days 90 n4",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("certs takes the names of the nodes, as in --node-id")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, nodes []string) error {
			rows, err := makeCerts(dir, nodes, days, time.Now())
			return errors.Join(a.printCerts(rows), err)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the files; made where there is none")
	cmd.Flags().IntVar(&days, "days", defaultCertDays, "how long the nodes' certificates are valid, but no longer than the authority")
	if err := cmd.MarkFlagDirname("dir"); err != nil {
		panic(err) // the flag does not exist
	}
	return cmd
}

// certRow is a certificate that was made. Node is empty for the authority.
type certRow struct {
	Node        string    `json:"node,omitempty"`
	Authority   bool      `json:"authority,omitempty"`
	Certificate string    `json:"certificate"`
	Key         string    `json:"key"`
	Ends        time.Time `json:"ends,omitzero"`
}

// makeCerts checks everything before it makes anything, and returns what it made, beside an error
// too.
func makeCerts(dir string, nodes []string, days int, now time.Time) (rows []certRow, err error) {
	if dir == "" {
		return nil, usageError("--dir names the directory of the certificates, and is missing")
	}
	if days < 1 {
		return nil, usageError("--days %d: a certificate is valid for one day at least", days)
	}
	for i, node := range nodes {
		if err := peer.CheckNodeID(node); err != nil {
			return nil, usageError("%v", err)
		}
		if slices.Contains(nodes[:i], node) {
			return nil, usageError("node %s is named twice", node)
		}
		cert, key := peer.NodeFiles(dir, node)
		for _, path := range []string{cert, key} {
			if exists(path) {
				return nil, &exitError{exitRefused, fmt.Sprintf("node %s has %s already and nothing was made; move it away, or name another --dir", node, path)}
			}
		}
	}
	cert, key := peer.CAFiles(dir)
	switch hasCert, hasKey := exists(cert), exists(key); {
	case hasCert && !hasKey:
		return nil, &exitError{exitRefused, fmt.Sprintf("%s is there without %s, which signs; put it there, or name another --dir for a new authority", cert, key)}
	case hasKey && !hasCert:
		return nil, &exitError{exitRefused, fmt.Sprintf("%s is there without %s; put it there, or name another --dir for a new authority", key, cert)}
	case !hasCert:
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, usageError("--dir: %v", err)
		}
		if err := peer.MakeCA(dir, now); err != nil {
			return nil, err
		}
		rows = append(rows, certRow{Authority: true, Certificate: cert, Key: key})
	}
	for _, node := range nodes {
		ends, err := peer.IssueNode(dir, node, now, time.Duration(days)*24*time.Hour)
		if err != nil {
			return rows, err
		}
		cert, key := peer.NodeFiles(dir, node)
		rows = append(rows, certRow{Node: node, Certificate: cert, Key: key, Ends: ends.UTC()})
	}
	return rows, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (a *app) printCerts(rows []certRow) error {
	if len(rows) == 0 {
		return nil
	}
	each := func(yield func(certRow, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
	return list(a, each, 0,
		func(r certRow) ([]byte, error) { return json.Marshal(r) },
		func(r certRow) []string {
			name, ends := r.Node, ""
			if r.Authority {
				name = "(authority)"
			} else {
				ends = r.Ends.Format(time.RFC3339)
			}
			return []string{name, ends, r.Certificate, r.Key}
		},
		"NODE", "ENDS", "CERTIFICATE", "KEY")
}
