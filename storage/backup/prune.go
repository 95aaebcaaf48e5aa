package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Pruned lists the removed backups and files.
type Pruned struct {
	// Backups that are no more, the oldest first, and how many are left.
	Backups []string
	Kept    int
	// Files that no backup has any more, and their bytes.
	Files, Bytes uint64
}

// Prune removes all backups but the keep (at least 1) with the highest positions, and the files
// that no backup needs any more. Manifests are removed first, so that no manifest lacks files. If a
// manifest is unreadable, Prune removes nothing, because the files of that backup are unknown.
// Before it removes a backup, it reads all files of the kept ones; if one is incomplete, it removes
// nothing, because a backup to be removed may be complete. progress may be nil. Errors: ErrBusy,
// ErrManifest, proof.ErrBackupFormat, those of Verify and of the disk.
func (r *Repository) Prune(ctx context.Context, keep int, progress func(Progress)) (p *Pruned, err error) {
	if keep < 1 {
		return nil, fmt.Errorf("backup: cannot keep %d backups, at least 1", keep)
	}
	lock, err := r.lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	list, err := r.List()
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.Err != nil {
			return nil, fmt.Errorf("nothing removed, because the files of a backup are unknown: %w", e.Err)
		}
	}
	p = &Pruned{Kept: min(keep, len(list))}
	gone, kept := list[:len(list)-p.Kept], list[len(list)-p.Kept:]
	if len(gone) > 0 {
		if err := r.whole(ctx, kept, progress); err != nil {
			return nil, fmt.Errorf("nothing removed, because a backup to be kept is damaged: %w", err)
		}
	}
	for _, e := range gone {
		if err := r.fs.Remove(r.path(e.Name + manifestSuffix)); err != nil {
			return p, fmt.Errorf("backup: %w", err)
		}
		p.Backups = append(p.Backups, e.Name)
	}
	if err := syncDir(r.fs, r.dir); err != nil {
		return p, err
	}
	wanted := map[string]bool{}
	for _, e := range kept {
		for _, f := range e.Files {
			wanted[f.SHA256.String()] = true
		}
	}
	j, err := openJournal(r)
	if err != nil {
		return p, err
	}
	for _, f := range j.files {
		wanted[f.SHA256.String()] = true // the next backup will have most of them
	}
	return p, r.sweep(wanted, p)
}

// whole verifies backups.
func (r *Repository) whole(ctx context.Context, list []Entry, progress func(Progress)) error {
	all := make([]*Manifest, len(list))
	for i, e := range list {
		all[i] = e.Manifest
	}
	errs := r.VerifyAll(ctx, all, progress)
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", all[i].Name, err)
		}
	}
	return errors.Join(errs...)
}

// sweep removes unneeded files. It skips names that are not digests: they are not the repository's.
func (r *Repository) sweep(wanted map[string]bool, p *Pruned) error {
	if err := r.fs.RemoveAll(r.path(incomingDir)); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	for sub := range 1 << 8 {
		dir := r.path(filesDir, fmt.Sprintf("%02x", sub))
		names, err := r.fs.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("backup: %w", err)
		}
		for _, name := range names {
			path := r.fs.PathJoin(dir, name)
			if wanted[name] || !storedRE.MatchString(name) {
				continue
			}
			info, err := r.fs.Stat(path)
			if err == nil {
				err = r.fs.Remove(path)
			}
			if err != nil {
				return fmt.Errorf("backup: %w", err)
			}
			p.Files++
			p.Bytes += uint64(info.Size())
		}
	}
	return nil
}
