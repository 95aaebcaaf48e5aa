package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/workload"
)

const (
	// replacePatience is how long an operator retries one step while faults continue.
	replacePatience = 5 * time.Minute
	operatorPause   = 200 * time.Millisecond
	operatorTimeout = 5 * time.Second
)

// operator is a host that calls the nodes' administrative methods.
type operator struct{ world *world }

// transfer asks for a transfer of the leadership to a node; empty: the leader picks one.
func (o operator) transfer(f Fault, to string) {
	o.once(f, func(ctx context.Context, via runlogv1.ClusterServiceClient, _ runlogv1.AuditServiceClient) error {
		_, err := via.TransferLeadership(ctx, &runlogv1.TransferLeadershipRequest{NodeId: to})
		return err
	})
}

// token makes a token for a tenant, before the faults begin.
func (o operator) token(ctx context.Context, tenant string) (workload.Bearer, error) {
	conn, err := o.world.dial("operator", 0)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	made, err := runlogv1.NewAccessServiceClient(conn).CreateToken(ctx, &runlogv1.CreateTokenRequest{
		Name: stranger, Tenants: []string{tenant},
		Roles: []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER, runlogv1.Role_AUDITOR},
	})
	return workload.Bearer(made.GetToken()), err
}

// rotateKey asks for a new signing key, which the current key endorses.
func (o operator) rotateKey(f Fault) {
	o.once(f, func(ctx context.Context, _ runlogv1.ClusterServiceClient, via runlogv1.AuditServiceClient) error {
		_, err := via.RotateSigningKey(ctx, &runlogv1.RotateSigningKeyRequest{})
		return err
	})
}

// once calls the node of a fault, and counts the fault if the call succeeds.
func (o operator) once(f Fault, do func(context.Context, runlogv1.ClusterServiceClient, runlogv1.AuditServiceClient) error) {
	ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
	defer cancel()
	conn, err := o.world.dial("operator", f.Nodes[0])
	if err != nil {
		return
	}
	defer conn.Close()
	if do(ctx, runlogv1.NewClusterServiceClient(conn), runlogv1.NewAuditServiceClient(conn)) == nil {
		o.world.count(f.Kind)
	}
}

// until calls one node after the other until one says that the step is done.
func (o operator) until(done func(context.Context, runlogv1.ClusterServiceClient) (yes bool, err error)) error {
	last := errors.New("it is not done")
	for began, node := time.Now(), 0; time.Since(began) < replacePatience; node = (node + 1) % len(o.world.nodes) {
		conn, err := o.world.dial("operator", node)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
		yes, err := done(ctx, runlogv1.NewClusterServiceClient(conn))
		cancel()
		_ = conn.Close()
		if yes {
			return nil
		}
		last = cmp.Or(err, last)
		time.Sleep(operatorPause)
	}
	return fmt.Errorf("not after %s: %w", replacePatience, last)
}

// member returns what the cluster reports about a node.
func (o operator) member(host string) (m *runlogv1.Member, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
	defer cancel()
	conn, err := o.world.dial("operator", 0)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return memberOf(ctx, runlogv1.NewClusterServiceClient(conn), host)
}

func memberOf(ctx context.Context, via runlogv1.ClusterServiceClient, host string) (*runlogv1.Member, error) {
	all, err := via.GetStatus(ctx, &runlogv1.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all.GetMembers(), func(m *runlogv1.Member) bool { return m.GetNodeId() == host })
	if i < 0 {
		return nil, fmt.Errorf("sim: %s is no member", host)
	}
	return all.GetMembers()[i], nil
}
