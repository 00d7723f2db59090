package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"podd/internal/pod"
	"podd/internal/wake"
)

// importFile imports an archive unless it was imported before. Its errors are
// temporary; a bad archive is a problem, not an error.
func (d *Dir) importFile(ctx context.Context, f file, recheck bool) error {
	d.mu.Lock()
	refused := d.rejected[f.path] == f.stamp
	d.mu.Unlock()
	if refused {
		return nil
	}
	have, err := d.alreadyImported(ctx, f, recheck)
	if err != nil || have {
		return err
	}
	d.mu.Lock()
	d.unsettleLocked()
	d.mu.Unlock()
	began := time.Now()
	d.reportProgress(Progress{File: f.path, Size: f.stamp.Size})
	refs, err := d.cfg.Importer.Import(ctx, f.path)
	if err == nil && len(refs) == 0 {
		err = &InvalidError{File: f.path, Reason: "names no image"}
	}
	d.reportProgress(Progress{File: f.path, Size: f.stamp.Size, Done: true, Refs: refs, Err: err, Took: time.Since(began)})
	d.metrics.observe(err, time.Since(began))
	if err == nil {
		return d.recordImport(ctx, f, refs, time.Since(began))
	}
	if ctx.Err() != nil {
		return err
	}
	d.recordProblem(f.path, err)
	if _, bad := errors.AsType[*InvalidError](err); bad {
		d.mu.Lock()
		d.rejected[f.path] = f.stamp
		d.mu.Unlock()
		return nil
	}
	return err
}

// alreadyImported reports whether the runtime has all images of an archive that was
// imported before, with this stamp or this content.
func (d *Dir) alreadyImported(ctx context.Context, f file, recheck bool) (bool, error) {
	known, ok := d.state.get(f.path)
	if !ok {
		return false, nil
	}
	if known.Stamp != f.stamp {
		digest, err := digestFile(f.path)
		if err != nil || digest != known.Digest {
			return false, nil
		}
		known.Stamp = f.stamp // touched, copied or restored: the content is the same
		d.state.put(f.path, known)
		recheck = true
	}
	if !recheck {
		return true, nil
	}
	var missing []string
	for _, ref := range known.Refs {
		image, err := d.cfg.Images.ImageStatus(ctx, ref)
		if err != nil {
			return false, fmt.Errorf("ask the runtime for image %s: %w", ref, err)
		}
		if image == nil {
			missing = append(missing, ref)
		}
	}
	if len(missing) > 0 {
		d.log.Info("images of the image directory are missing from the runtime: importing them again", "file", f.path, "images", missing)
	}
	return len(missing) == 0, nil
}

func (d *Dir) recordImport(ctx context.Context, f file, refs []string, took time.Duration) error {
	d.awaitVisible(ctx, refs)
	d.mu.Lock()
	delete(d.problems, f.path)
	delete(d.rejected, f.path)
	d.mu.Unlock()
	d.log.Info("imported images", "file", f.path, "images", refs, "took", took.Round(time.Millisecond))
	digest, err := digestFile(f.path)
	if err == nil {
		err = d.state.put(f.path, record{Stamp: f.stamp, Digest: digest, Refs: refs})
	}
	if err != nil { // only means another import at the next start
		d.log.Warn("cannot save which archives were imported", "file", f.path, "error", err)
	}
	if d.cfg.Imported != nil {
		d.cfg.Imported(refs)
	}
	return nil
}

// awaitVisible blocks until CRI shows the images, two seconds at most: its image service hears
// of an import from containerd's events, some milliseconds later. A pod that is woken
// before that would find its image missing, and have it imported again.
func (d *Dir) awaitVisible(ctx context.Context, refs []string) {
	ctx, cancel := context.WithTimeout(ctx, visibleTimeout)
	defer cancel()
	for _, ref := range refs {
		for {
			if image, err := d.cfg.Images.ImageStatus(ctx, ref); err != nil || image != nil {
				break
			}
			if !wake.Sleep(ctx, visiblePollInterval) {
				return
			}
		}
	}
}

func (d *Dir) reportProgress(p Progress) {
	if d.cfg.Progress != nil {
		d.cfg.Progress(p)
	}
}

// recordProblem records a problem, and logs it if it is new.
func (d *Dir) recordProblem(path string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, known := d.problems[path]
	p := pod.Problem{Origin: path, Message: err.Error(), Since: time.Now()}
	if known && old.Message == p.Message {
		return
	}
	d.problems[path] = p
	d.log.Warn("cannot import images", "from", path, "error", err)
}

// pruneProblems drops problems of files that are gone, and of directories that
// are good again.
func (d *Dir) pruneProblems(there map[string]struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path := range d.problems {
		if _, ok := there[path]; !ok {
			delete(d.problems, path)
		}
	}
	for path := range d.rejected {
		if _, ok := there[path]; !ok {
			delete(d.rejected, path)
		}
	}
}
