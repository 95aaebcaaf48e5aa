package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client/command/output"
	runlogv1 "runlog/proto/runlog/v1"
)

const joinTokenID = "0198c0de-0000-7000-8000-000000000001"

var (
	joinToken   = "rlj_" + strings.Repeat("A", 43)
	joinExpires = timestamppb.New(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
)

func (f *fakeCluster) CreateJoinToken(context.Context, *runlogv1.CreateJoinTokenRequest) (*runlogv1.CreateJoinTokenResponse, error) {
	return &runlogv1.CreateJoinTokenResponse{Token: joinToken, TokenId: joinTokenID, ExpireTime: joinExpires}, f.refuse
}

func fakeJoinToken() *runlogv1.JoinToken {
	return &runlogv1.JoinToken{
		TokenId: joinTokenID, Uses: 3, Used: 1, ExpireTime: joinExpires, CreateTime: timestamppb.New(joinExpires.AsTime().Add(-time.Hour)),
	}
}

func (f *fakeCluster) ListJoinTokens(context.Context, *runlogv1.ListJoinTokensRequest) (*runlogv1.ListJoinTokensResponse, error) {
	return &runlogv1.ListJoinTokensResponse{Tokens: []*runlogv1.JoinToken{fakeJoinToken()}}, f.refuse
}

func (f *fakeCluster) RevokeJoinToken(context.Context, *runlogv1.RevokeJoinTokenRequest) (*runlogv1.RevokeJoinTokenResponse, error) {
	t := fakeJoinToken()
	t.RevokeTime = joinExpires
	return &runlogv1.RevokeJoinTokenResponse{Token: t}, f.refuse
}

// TestGoldenJoinToken shows what operators see: the token alone is on stdout, once (SEC-1).
func TestGoldenJoinToken(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	fake := &fakeServer{}
	for _, args := range []string{
		"cluster token create", "cluster token create --expires 24h --uses 3 -o json", "cluster token create --uses 0",
		"cluster token create --expires -1s", "cluster token list", "cluster token list -o json",
		"cluster token revoke " + joinTokenID, "cluster token revoke", "cluster token create --help",
	} {
		s := &invocation{args: strings.Fields(args)}
		s.do(t.Context(), t, fake)
		got.WriteString(s.text())
	}
	golden(t, "cluster-token", got.String())
}

// TestJoinTokenFileSEC1: serve reads a join token from a file of the owner alone, and says what is
// wrong with any other.
func TestJoinTokenFileSEC1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for said, args := range map[string][]string{
		"needs --join":       {"--join-token-file", file("good", joinToken, 0o600)},
		"chmod 600":          {"--join", "a:1", "--join-token-file", file("open", joinToken, 0o644)},
		"has no join token":  {"--join", "a:1", "--join-token-file", file("api", "rlk_"+strings.Repeat("A", 43), 0o600)},
		"no such file or di": {"--join", "a:1", "--join-token-file", filepath.Join(dir, "none")},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), testSession(&out, &errs), append([]string{"serve", "--data-dir", filepath.Join(dir, "data")}, args...))
		if code != output.ExitUsage || !strings.Contains(errs.String(), said) || strings.Contains(errs.String(), "AAAA") {
			t.Errorf("%v: exit %d, %s", args, code, errs.String())
		}
	}
}
