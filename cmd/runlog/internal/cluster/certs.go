package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"runlog/client/command/output"

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
		Long: `Make a certificate and a key for each node, and the cluster's certificate authority if DIR has none.
No file is overwritten. Every node needs ca.crt and its own two files, and reloads them when they change.
No node needs ca.key, which can make a member of the cluster: keep it on a machine without nodes.`,
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
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the files; created if it does not exist")
	cmd.Flags().IntVar(&days, "days", defaultCertDays, "validity of the nodes' certificates in days, at most that of the authority")
	if err := cmd.MarkFlagDirname("dir"); err != nil {
		panic(err) // the flag does not exist
	}
	return cmd
}

// certRow is a new certificate. Node is empty for the authority.
type certRow struct {
	Node        string    `json:"node,omitempty"`
	Authority   bool      `json:"authority,omitempty"`
	Certificate string    `json:"certificate"`
	Key         string    `json:"key"`
	Ends        time.Time `json:"ends,omitzero"`
}

// makeCerts checks all arguments before it makes a file. It returns the certificates that it made,
// also beside an error.
func makeCerts(dir string, nodes []string, days int, now time.Time) (rows []certRow, err error) {
	if dir == "" {
		return nil, output.UsageError("--dir is missing; name the directory of the certificates")
	}
	if days < 1 {
		return nil, output.UsageError("--days %d is too short; a certificate is valid for one day at least", days)
	}
	for i, node := range nodes {
		if err := peer.CheckNodeID(node); err != nil {
			return nil, output.UsageError("%v", err)
		}
		if slices.Contains(nodes[:i], node) {
			return nil, output.UsageError("node %s is named twice", node)
		}
		cert, key := peer.NodeFiles(dir, node)
		for _, path := range []string{cert, key} {
			if exists(path) {
				return nil, output.Errorf(output.ExitRefused, "node %s has %s already, and no file was made; move it away, or name another --dir", node, path)
			}
		}
	}
	cert, key := peer.CAFiles(dir)
	switch hasCert, hasKey := exists(cert), exists(key); {
	case hasCert && !hasKey:
		return nil, output.Errorf(output.ExitRefused, "%s is there without %s, which signs; restore that file, or name another --dir for a new authority", cert, key)
	case hasKey && !hasCert:
		return nil, output.Errorf(output.ExitRefused, "%s is there without %s; restore that file, or name another --dir for a new authority", key, cert)
	case !hasCert:
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, output.UsageError("--dir: %v", err)
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
	return output.List(&a.Output, output.All(rows), 0,
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
