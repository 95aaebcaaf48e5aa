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
	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/engine/route"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
)

// validate reports every fault of the flags.
func (a *app) validate() error {
	var faults []error
	refuse := func(fault bool, format string, args ...any) {
		if fault {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	if !strings.Contains(a.temporal, ":///") { // The scheme of another resolver of gRPC.
		_, port, err := net.SplitHostPort(a.temporal)
		refuse(err != nil || port == "", "--temporal is %q: write host:port, such as 127.0.0.1:7233", a.temporal)
	}
	refuse(a.namespace == "", "--namespace is empty: name a namespace of Temporal, such as default")
	refuse(a.prefixOfWorkflows == "", "--workflow-prefix is empty: name how the ids of workflows begin, such as %s", temporal.DefaultPrefix)
	refuse(a.environment == "", "--environment is empty: name one, such as prod")
	refuse(a.project != "" && a.tenant == "", "--project is %q, and --tenant is missing: name the tenant too", a.project)
	refuse(!a.once && len(a.allow) == 0, "--allow is missing: name the URI below which plans may be read, such as file:///srv/plans")
	refuse(slices.Contains(a.allow, ""), "--allow is empty: name a URI, such as file:///srv/plans")
	refuse(!a.once && (a.grace < time.Second || a.grace > time.Hour), "--grace is %v: write 1s to 1h", a.grace)
	refuse(slices.Contains(a.queues, ""), "--queue is empty: name a task queue, or leave it out")
	for _, class := range a.classes {
		refuse(!slices.Contains([]string{route.Control, route.Data, route.Isolation}, class), "--class is %q: write control, data or isolation", class)
	}
	refuse(slices.Contains(a.classes, route.Isolation) && len(a.isolation) == 0, "--class isolation needs --isolation: name the tenant")
	refuse(!a.serves(route.Isolation) && len(a.isolation) > 0, "--isolation needs --class isolation")
	refuse(slices.Contains(a.isolation, ""), "--isolation is empty: name a tenant, or leave it out")
	refuse(a.sweepEvery < 0, "--sweep-every is %v: write 0, which never sweeps, or more", a.sweepEvery)
	refuse(a.idle < 0, "--idle is %v: write 0, which is the default, or more", a.idle)
	return errors.Join(faults...)
}

// patience is how long a worker that starts waits for runlog and for Temporal.
const patience = 30 * time.Second

// ready waits until runlog and Temporal answer. It returns an error if a worker could do nothing
// with them: credentials that are refused, a namespace that is not there.
func (a *app) ready(ctx context.Context, e *temporal.Engine) error {
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	who, err := a.log.WhoAmI(ctx)
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code == codes.Unimplemented && e.Reason != "" {
		err = nil // An older server does not know the call.
	}
	if err != nil {
		return fmt.Errorf("cannot ask runlog whose credentials these are: %w", err)
	}
	for _, role := range []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER} {
		if who != nil && !slices.Contains(who.GetRoles(), role) {
			return fmt.Errorf("%s has the roles %v, and a worker needs PRODUCER and READER: make a token with \"runlog token create NAME --role producer --role reader\"",
				who.GetName(), who.GetRoles())
		}
	}
	for {
		err := e.Ping(ctx)
		if err == nil && a.register {
			err = e.Register(ctx)
		}
		_, away := errors.AsType[*serviceerror.Unavailable](err)
		if !away {
			return err
		}
		a.logger.WarnContext(ctx, "cannot reach Temporal; retrying", "temporal", a.temporal, "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// remedied is an error with what to do about it.
type remedied struct {
	error
	remedy string
}

// Error has the remedy behind the cause.
func (r *remedied) Error() string { return strings.TrimSuffix(r.error.Error(), ".") + "; " + r.remedy }

// Unwrap returns the cause.
func (r *remedied) Unwrap() error { return r.error }

// explain adds the remedy to an error that runlog, Temporal or their connections gave.
func (a *app) explain(err error) error {
	remedy := a.remedyOfTemporal(err)
	if e, ok := errors.AsType[*client.Error](err); ok {
		remedy = a.remedyOfLog(e)
	}
	if remedy == "" {
		return err
	}
	return &remedied{err, remedy}
}

func (a *app) remedyOfLog(e *client.Error) string {
	switch {
	case e.Reason == client.ReasonUnauthenticated:
		return "name the file of a token that is valid with --token-file"
	case e.Reason == client.ReasonPermissionDenied:
		return "\"runlog whoami\" shows the roles and the tenants of a token, and docs/temporal.md which ones the command needs"
	case e.Reason != "": // The message of the server has the remedy.
		return ""
	case e.Code == codes.Unavailable && strings.Contains(e.Message, "server preface"):
		return fmt.Sprintf("--server is %s, which speaks no gRPC in plain text: name the --grpc-listen of a node (port 7410 by default), with https:// before it if the node has --tls-cert", a.node.Server)
	case e.Code == codes.Unavailable || e.Code == codes.DeadlineExceeded:
		return fmt.Sprintf("--server is %s: start a node with \"runlog serve\", or name another one", a.node.Server)
	case e.Code == codes.Unimplemented:
		return fmt.Sprintf("--server is %s, which is no node of runlog, or one that is too old", a.node.Server)
	}
	return ""
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
