package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"

	_ "embed"

	"github.com/jackc/pgx/v5/pgxpool"
)

const postgresStart = 60 * time.Second

//go:embed schema.sql
var schema string

// postgresSettings differ from the defaults. None of them weakens a promise: fsync,
// full_page_writes and synchronous_commit stay on, and commits are flushed with fdatasync.
var postgresSettings = []string{
	"synchronous_commit=on", "fsync=on", "full_page_writes=on", "wal_sync_method=fdatasync",
	"shared_buffers=1GB", "wal_buffers=64MB", "max_wal_size=16GB", "min_wal_size=1GB", "checkpoint_timeout=15min",
	"wal_level=minimal", "max_wal_senders=0", "wal_compression=lz4", "jit=off", "max_connections=300",
	"huge_pages=try", "listen_addresses=127.0.0.1", "unix_socket_directories=",
}

// postgres is a cluster of its own in a temporary directory.
type postgres struct {
	process  *target.Process
	pool     *pgxpool.Pool
	form     batchForm
	settings []string
	conns    int
	version  string
}

// postgresBin is where Debian keeps the programs of the version that is compared.
func postgresBin() (string, error) {
	for _, dir := range []string{"/usr/lib/postgresql/15/bin", os.Getenv("POSTGRES_BIN")} {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); dir != "" && err == nil {
			return dir, nil
		}
	}
	return "", errors.New("PostgreSQL 15 is not installed: apt-get install -y postgresql-15, or name the directory of initdb with POSTGRES_BIN, or leave it out with --systems runlog,etcd,nats")
}

// openPostgres makes a cluster, starts it, and makes the table and the functions. extra are
// settings, as in "commit_delay=100", that come after the usual ones and win.
func openPostgres(form batchForm, conns int, extra string) func(context.Context, string) (target.Target, error) {
	return func(ctx context.Context, dir string) (target.Target, error) {
		bin, err := postgresBin()
		if err != nil {
			return nil, err
		}
		who, err := serverUser(dir)
		if err != nil {
			return nil, err
		}
		data := filepath.Join(dir, "data")
		initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", data, "--username", "bench", "--auth", "trust",
			"--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")
		initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: who}
		if out, err := initdb.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
		}
		p := &postgres{form: form, conns: conns, settings: append(slices.Clone(postgresSettings), strings.Fields(extra)...)}
		if err := p.start(ctx, bin, dir, data, who); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		return p, nil
	}
}

func (p *postgres) start(ctx context.Context, bin, dir, data string, who *syscall.Credential) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	args := []string{"-D", data, "-p", port}
	for _, s := range p.settings {
		args = append(args, "-c", s)
	}
	server := exec.Command(filepath.Join(bin, "postgres"), args...)
	server.Dir, server.SysProcAttr = dir, &syscall.SysProcAttr{Credential: who}
	if p.process, err = target.StartProcess(filepath.Join(dir, "log"), server); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig("host=127.0.0.1 port=" + port + " user=bench dbname=postgres sslmode=disable pool_max_conns=" + strconv.Itoa(p.conns))
	if err != nil {
		return err
	}
	// Connections are made once and kept.
	config.MinConns = int32(p.conns)
	config.AfterConnect = p.form.connect
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	if err := p.process.Wait(ctx, postgresStart, func() bool { return p.pool.Ping(ctx) == nil }); err != nil {
		return err
	}
	if _, err := p.pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("make the schema: %w", err)
	}
	return p.pool.QueryRow(ctx, "show server_version").Scan(&p.version)
}

// serverUser is the account of the server: PostgreSQL refuses to run as root. It needs to reach
// dir.
func serverUser(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres to run it as: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	// The bench has made both, for itself alone.
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(
		os.Chown(dir, int(uid), int(gid)), os.Chmod(filepath.Dir(dir), 0o711))
}

// Describe names the version and every setting that is not the default.
func (p *postgres) Describe() []report.Fact {
	return []report.Fact{
		{Name: "version", Value: "PostgreSQL " + p.version},
		{Name: "settings", Value: strings.Join(p.settings, " ")},
		{Name: "adapter", Value: fmt.Sprintf("%d connections, batches by %s", p.conns, p.form.name)},
	}
}

// Close ends the sessions and the server, at once ("fast").
func (p *postgres) Close() error {
	if p.pool != nil {
		p.pool.Close()
	}
	if p.process == nil {
		return nil
	}
	return p.process.StopWith(os.Interrupt)
}
