package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"

	"runlog/engine/program"
	"runlog/engine/temporal"
)

// validate reports every fault of the flags.
func (a *app) validate() error {
	var f program.Faults
	if !strings.Contains(a.temporal, ":///") { // The scheme of another resolver of gRPC.
		_, port, err := net.SplitHostPort(a.temporal)
		f.Refuse(err != nil || port == "", "--temporal is %q: write host:port, such as 127.0.0.1:7233", a.temporal)
	}
	f.Refuse(a.namespace == "", "--namespace is empty: name a namespace of Temporal, such as default")
	f.Refuse(a.prefixOfWorkflows == "", "--workflow-prefix is empty: name how the ids of workflows begin, such as %s", temporal.DefaultPrefix)
	a.scope.Check(&f)
	f.Refuse(!a.once && len(a.allow) == 0, "--allow is missing: name the URI below which plans may be read, such as file:///srv/plans")
	f.Refuse(slices.Contains(a.allow, ""), "--allow is empty: name a URI, such as file:///srv/plans")
	f.Refuse(!a.once && (a.grace < time.Second || a.grace > time.Hour), "--grace is %v: write 1s to 1h", a.grace)
	a.queues.Check(&f)
	f.Refuse(a.sweepEvery < 0, "--sweep-every is %v: write 0, which never sweeps, or more", a.sweepEvery)
	f.Refuse(a.idle < 0, "--idle is %v: write 0, which is the default, or more", a.idle)
	return f.Join()
}

// patience is how long a worker that starts waits for runlog and for Temporal.
const patience = 30 * time.Second

// ready waits until runlog and Temporal answer. A namespace that is not there is an error.
func (a *app) ready(ctx context.Context, e *temporal.Engine) error {
	servers := &program.Servers{Node: &a.node, Log: a.log, Engine: "Temporal", Address: a.temporal, Patience: a.patience, Logger: a.logger,
		Ask: func(ctx context.Context) error {
			err := e.Ping(ctx)
			if err == nil && a.register {
				err = e.Register(ctx)
			}
			return err
		},
		Away: func(err error) bool {
			_, away := errors.AsType[*serviceerror.Unavailable](err)
			return away
		}}
	return servers.Wait(ctx)
}

// explain adds the remedy to an error that runlog, Temporal or their connections gave.
func (a *app) explain(err error) error {
	remedy := a.node.Remedy(err)
	if remedy == "" {
		remedy = a.remedyOfTemporal(err)
	}
	return program.Remedied(err, remedy)
}

func (a *app) remedyOfTemporal(err error) string {
	if _, ok := errors.AsType[*serviceerror.NamespaceNotFound](err); ok {
		return fmt.Sprintf("make it with \"temporal operator namespace create --namespace %s\", or name another one with --namespace", a.namespace)
	}
	_, away := errors.AsType[*serviceerror.Unavailable](err)
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	if away || late {
		return fmt.Sprintf("--temporal is %s: start a Temporal server, or name the host:port of another one", a.temporal)
	}
	if _, ok := errors.AsType[*serviceerror.Unimplemented](err); ok {
		return fmt.Sprintf("--temporal is %s, which is no Temporal server: name the host:port of its frontend, whose port is 7233 by default", a.temporal)
	}
	if _, ok := errors.AsType[*serviceerror.InvalidArgument](err); ok {
		return "if it is about a search attribute, start a worker in this namespace first: it makes them known"
	}
	return ""
}
