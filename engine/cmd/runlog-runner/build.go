package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"

	"runlog/client/command/output"
	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/workerflags"
)

// stores opens the store of manifests, and those of plans.
func (v *serving) stores() error {
	var allow []string
	for i, text := range append([]string{v.store}, v.plans...) {
		flag := "plans"
		if i == 0 {
			flag = "store"
		}
		uri, err := storeURI(flag, text)
		if err != nil {
			return err
		}
		allow = append(allow, uri)
	}
	v.o.Base = allow[0]
	if scheme, _, _ := strings.Cut(v.o.Base, "://"); scheme == "http" || scheme == "https" {
		return output.UsageError("--store %s cannot be written: name a directory, or s3://BUCKET/PREFIX", blob.Shown(v.o.Base))
	}
	blobs, err := blob.New(blob.Options{Allow: allow})
	if err != nil {
		return output.UsageError("--store, --plans: %v", err)
	}
	for _, uri := range allow {
		known := false
		for _, scheme := range blobs.Schemes() {
			known = known || strings.HasPrefix(uri, scheme+"://")
		}
		if !known {
			return output.UsageError("--store, --plans: %s: name a directory, or a URI of %s", blob.Shown(uri), strings.Join(blobs.Schemes(), ", "))
		}
	}
	if v.approvedOnly {
		if len(v.plans) == 0 {
			return output.UsageError("--approved-plans-only needs --plans, where the approved plans are")
		}
		if v.o.Approved, err = blob.New(blob.Options{Allow: allow[1:]}); err != nil {
			return output.UsageError("--plans: %v", err)
		}
	}
	if v.o.Blobs = blobs; !strings.Contains(v.store, "://") {
		if err := os.MkdirAll(v.store, 0o700); err != nil {
			return output.UsageError("--store: %v; name a directory that this user can write", err)
		}
	}
	return nil
}

// likeScheme is what a URI begins with, and hardly ever the name of a directory.
var likeScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)

// storeURI returns the URI of a store, which a flag has as a URI or as a directory. The directory
// of --store is made later.
func storeURI(flag, text string) (string, error) {
	if strings.Contains(text, "://") {
		return text, nil
	}
	if likeScheme.MatchString(text) {
		return "", output.UsageError("--%s %s is neither a URI, such as s3://BUCKET/PREFIX, nor a directory: write ./%s if it is one", flag, text, text)
	}
	if info, err := os.Stat(text); flag == "plans" && (err != nil || !info.IsDir()) {
		return "", output.UsageError("--plans %s is no directory that can be read: name one, or a URI", text)
	}
	uri, err := blob.FileURI(text)
	if err != nil {
		return "", output.UsageError("--%s: %v", flag, err)
	}
	return uri, nil
}

// capabilitiesFile has what the runners of a store can do, for planners.
const capabilitiesFile = "adapterCapabilities.json"

// publish writes what the runner can do into its store. A store that cannot be written is found
// here, and not by the first run.
func (v *serving) publish(ctx context.Context, c engine.Capabilities) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	err = v.o.Blobs.Put(ctx, strings.TrimSuffix(v.o.Base, "/")+"/"+capabilitiesFile, bytes.NewReader(text), int64(len(text)))
	if err == nil {
		return nil
	}
	code, remedy := output.ExitFailed, "name a directory that this user can write"
	if strings.HasPrefix(v.o.Base, "s3://") {
		remedy = "check the bucket, AWS_ENDPOINT_URL, AWS_REGION and the credentials, which need s3:GetObject, s3:PutObject and s3:ListBucket"
	}
	if e, ok := errors.AsType[*blob.Error](err); ok {
		switch e.Kind {
		case blob.Transient:
			code = output.ExitUnavailable
		case blob.Denied:
			code = output.ExitForbidden
		case blob.Invalid, blob.NotFound, blob.Unsupported:
			code = output.ExitUsage
		}
	}
	return output.Errorf(code, "--store cannot be written: %v; %s", err, remedy)
}

// equip builds the executors and the secrets of the flags.
func (a *app) equip(v *serving) error {
	w, err := v.worker.Build(workerflags.Options{Getenv: a.Getenv, Tenant: v.o.Tenant, Environment: v.o.Environment, Logger: v.o.Logger, Trusting: v.trusting})
	if e, ok := errors.AsType[*workerflags.Error](err); ok {
		return output.UsageError("%v", e)
	}
	if err != nil {
		return err
	}
	v.o.Executors, v.o.Secrets = w.Executors, w.Secrets
	if !slices.Contains(w.Executors.Names(), v.o.DefaultExecutor) {
		return output.UsageError("--default-executor %q is not among the executors of this runner: name it in --executors", v.o.DefaultExecutor)
	}
	return nil
}
