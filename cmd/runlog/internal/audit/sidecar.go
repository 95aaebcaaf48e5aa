package audit

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"runlog/audit/export"
	"runlog/audit/proof"
	"runlog/client/command/output"
)

const (
	// manifestSuffix is what the name of a manifest has behind the name of its export.
	manifestSuffix = ".manifest"
	// maxManifest bounds the file of a manifest, in bytes.
	maxManifest = 1 << 20
)

// isManifest reports whether a file with these first bytes is the manifest of an export.
func isManifest(head []byte) bool { return bytes.HasPrefix(head, []byte(proof.ExportTitle+"\n")) }

// whyOther names what was done to a file that does not begin as it was exported.
func whyOther(head []byte) string {
	switch {
	case len(head) == 0:
		return ": it is empty"
	case bytes.HasPrefix(head, []byte("\ufeff")):
		return ", but with a byte order mark: another program has written it again; verify the file as it was exported"
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return ": it is compressed with gzip; decompress it first (gunzip -k)"
	}
	return ""
}

// findManifest returns the format of an export. If the export does not end with its manifest, it
// returns the manifest and the path of the file that has it: the named one, or the one beside the
// export.
func findManifest(e, named *evidence) (f export.Format, note, path string, err error) {
	f = export.Detect(e.head)
	beside := named
	if _, err := os.Stat(e.path + manifestSuffix); beside == nil && !errors.Is(err, fs.ErrNotExist) {
		if beside, err = openEvidence(e.path + manifestSuffix); err != nil {
			return f, "", "", err
		}
		defer beside.file.Close()
	}
	if f == 0 && e.size == 0 && beside != nil {
		f = export.JSONLines // without events
	}
	if f == 0 {
		return f, "", "", output.Errorf(output.ExitRefused, "%s", e.path+" does not begin as a file of \"runlog audit\""+whyOther(e.head))
	}
	inside, err := export.HasManifest(f, e.file, e.size)
	switch {
	case err != nil:
		return f, "", "", err
	case inside && named != nil:
		return f, "", "", output.UsageError("%s ends with its manifest; name it without %s", e.path, named.path)
	case inside:
		return f, "", "", nil
	case beside == nil:
		return f, "", "", output.Errorf(output.ExitRefused, "%s does not end with its manifest, and there is no %s: the file was cut or added to, or its manifest is in a file of another name; "+
			"if so, name both files", e.path, e.path+manifestSuffix)
	case beside.size > maxManifest:
		return f, "", "", output.Errorf(output.ExitRefused, "%s is larger than %s, and no manifest", beside.path, output.Size(maxManifest))
	}
	text, err := io.ReadAll(io.NewSectionReader(beside.file, 0, beside.size))
	return f, string(text), beside.path, err
}

// Values of the flag --manifest.
const (
	manifestInside  = "inside"
	manifestSidecar = "sidecar"
)

// checkManifest reports a --manifest that the format or the file does not have.
func (o *auditExportOptions) checkManifest(f export.Format) error {
	switch {
	case o.manifest == manifestInside:
		return nil
	case o.manifest != manifestSidecar:
		return output.UsageError("--manifest %q is neither %s nor %s", o.manifest, manifestInside, manifestSidecar)
	case !f.Sidecar():
		return output.UsageError("%s has its manifest in its metadata, where other programs do not mind it; leave --manifest out", f)
	case o.file == "-":
		return output.UsageError("standard output has no place for a file beside it; name a file, or leave --manifest out")
	}
	return nil
}

// sidecar returns the path of the manifest; empty if it is inside.
func (o *auditExportOptions) sidecar() string {
	if o.manifest == manifestSidecar {
		return o.file + manifestSuffix
	}
	return ""
}

// exportFiles are the files that an export writes.
type exportFiles struct {
	events   *target
	manifest *target // nil: the manifest is inside
}

// newExportFiles creates the files of an export under temporary names.
func (a *app) newExportFiles(opts auditExportOptions) (f exportFiles, err error) {
	if f.events, err = a.newTarget(opts.file); err != nil {
		return f, err
	}
	if path := opts.sidecar(); path != "" {
		if f.manifest, err = a.newTarget(path); err != nil {
			f.events.discard()
			return f, err
		}
	}
	return f, nil
}

// inside returns the manifest if the file of the events ends with it.
func (f *exportFiles) inside(manifest string) string {
	if f.manifest != nil {
		return ""
	}
	return manifest
}

// keep gives the files their final names. The manifest comes first: an export that is there has its
// manifest.
func (f *exportFiles) keep(manifest string) error {
	if f.manifest == nil {
		return f.events.keep()
	}
	_, err := io.WriteString(f.manifest, manifest)
	if err == nil {
		err = f.manifest.keep()
	}
	if err != nil {
		return err
	}
	if err = f.events.keep(); err != nil {
		err = errors.Join(err, os.Remove(f.manifest.path))
	}
	return err
}

// discard removes the temporary files.
func (f *exportFiles) discard() {
	f.events.discard()
	if f.manifest != nil {
		f.manifest.discard()
	}
}
