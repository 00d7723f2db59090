package file

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"podd/internal/pod"
	"podd/podconfig/manifest"
)

// rescan checks which files exist and which have changed.
func (s *Source) rescan(w *watcher) {
	names, err := s.list(w)
	if u, ok := errors.AsType[*Unreadable](err); ok {
		s.handlePathError(u)
		return
	}
	s.missingSince = time.Time{}
	if s.pathProblem != nil || !s.ready {
		s.pathProblem, s.ready, s.changed = nil, true, true
	}
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = true
		if _, waiting := s.pending[name]; !waiting {
			s.check(name, false, false)
		}
	}
	for name := range s.entries {
		if _, waiting := s.pending[name]; !present[name] && !waiting {
			s.pending[name] = delayedCheck{at: time.Now().Add(goneDelay), tentative: true}
		}
	}
	if !s.staleVersionsRemoved {
		s.staleVersionsRemoved = true
		paths := make([]string, 0, len(s.entries))
		for name := range s.entries {
			paths = append(paths, s.path(name))
		}
		_ = s.lastGood.Retain(paths...) // leftovers do no harm, and the next podd retries
	}
}

// list sets the watch and returns the names of the manifests. It sets the watch first, so that
// no change after the listing is missed.
func (s *Source) list(w *watcher) ([]string, error) {
	target, err := os.Stat(s.cfg.Path)
	if err == nil { // otherwise assume that it is what it was
		s.setSingle(!target.IsDir())
	}
	watched := s.cfg.Path
	if s.single {
		watched = filepath.Dir(s.cfg.Path)
	}
	if w != nil {
		if now, statErr := stat(watched); statErr != nil || w.dir < 0 || now.ino != w.target.ino || now.dev != w.target.dev {
			if err := w.aim(watched); err != nil {
				s.log.Warn("cannot watch for changes: they are found only at the next rescan", "every", s.cfg.CheckFrequency, "error", err)
			}
		}
	}
	if target, err = os.Stat(s.cfg.Path); err != nil {
		return nil, explain(s.cfg.Path, err)
	}
	if !target.IsDir() {
		s.setSingle(true)
		return []string{filepath.Base(s.cfg.Path)}, nil
	}
	s.setSingle(false)
	dir, err := os.ReadDir(s.cfg.Path)
	if err != nil {
		return nil, explain(s.cfg.Path, err)
	}
	names := make([]string, 0, len(dir))
	for _, d := range dir {
		switch name := d.Name(); {
		case IsManifest(name):
			names = append(names, name)
		case !strings.HasPrefix(name, "..") && !s.ignored[name]: // as in a ConfigMap mount
			s.ignored[name] = true
			s.log.Info("ignoring what is not a manifest: only "+Patterns+" are read", "name", name, "directory", d.IsDir())
		}
	}
	return names, nil
}

// setSingle switches between a directory and a single file. Their entries are not comparable.
func (s *Source) setSingle(single bool) {
	if s.single != single {
		s.single = single
		clear(s.entries)
		clear(s.pending)
		s.changed = true
	}
}

// handlePathError handles a path that is missing or cannot be read. Its pods stay unless it is
// missing for longer than dirGoneDelay.
func (s *Source) handlePathError(u *Unreadable) {
	now := time.Now()
	p := &pod.Problem{Origin: s.cfg.Path, Message: u.Message, Hint: u.Hint, Since: now}
	if u.NotFound {
		p.Message = "the manifest directory does not exist"
		p.Hint = "create it (mkdir -p " + s.cfg.Path + "), and podd sees it at once"
		if s.single {
			p.Message, p.Hint = "the manifest file does not exist", "put it there, and podd sees it at once"
		}
		if s.missingSince.IsZero() {
			s.missingSince = now
		}
		away := now.Sub(s.missingSince)
		switch {
		case len(s.entries) == 0 || away >= dirGoneDelay:
			for name := range s.entries {
				s.remove(name)
			}
			s.changed = s.changed || !s.ready
			s.ready = true
		default:
			// The path may just be in the middle of a replacement.
			s.pending[rescanName] = delayedCheck{at: s.missingSince.Add(dirGoneDelay)}
			p.LastGoodInUse = true
		}
	} else {
		p.LastGoodInUse = len(s.entries) > 0
	}
	if s.pathProblem == nil || s.pathProblem.Message != p.Message || s.pathProblem.LastGoodInUse != p.LastGoodInUse {
		s.pathProblem, s.changed = p, true
	}
}

func (s *Source) remove(name string) {
	delete(s.pending, name)
	if _, ok := s.entries[name]; ok {
		delete(s.entries, name)
		s.changed = true
	}
	if err := s.lastGood.Forget(s.path(name)); err != nil {
		s.log.Warn("cannot remove the last good version of a manifest", "manifest", s.path(name), "error", err)
	}
}

// check reads a file if it has changed or if an event says so. A tentative check changes nothing
// if the file is broken or lacks pods that it had: it may not be completely written. Without an
// event, the first check of a file that has changed or is gone changes nothing either: its
// events may be on their way.
func (s *Source) check(name string, event, tentative bool) {
	path := s.path(name)
	e := s.entries[name]
	if e != nil && !event && !e.mayBeRacy && !s.fitsNow(name, e) {
		if now, err := stat(path); err == nil && now == e.stamp {
			return
		}
	}
	data, st, err := readWithStamp(path)
	now := time.Now()
	next := &entry{stamp: st, readAt: now, mayBeRacy: now.Sub(st.mtime) < racy || now.Sub(st.ctime) < racy}
	if e != nil && now.Sub(e.readAt) < rapidReadGap {
		next.rapidReads = e.rapidReads + 1
	}
	if u, ok := errors.AsType[*Unreadable](err); ok {
		if u.NotFound && e != nil && !event {
			s.pending[name] = delayedCheck{at: now.Add(goneDelay), tentative: true}
			return
		}
		if u.NotFound {
			s.remove(name)
			return
		}
		next.problems = []pod.Problem{{Origin: path, Message: u.Message, Hint: u.Hint, Since: now}}
		next.addLastGood(s.previousContent(path, e, true), []manifest.Failed{{}})
		s.put(name, next, e)
		return
	}
	next.sum = sha256.Sum256(data)
	if e != nil && e.sum == next.sum && !s.fitsNow(name, e) {
		e.stamp, e.mayBeRacy, e.readAt, e.rapidReads = next.stamp, next.mayBeRacy, now, next.rapidReads
		return
	}
	if e != nil && !event {
		s.pending[name] = delayedCheck{at: now.Add(createDelay)}
		return
	}
	s.applyContent(name, data, next, tentative)
}

// applyContent decodes the current content of a file and applies it. The caller has set next's
// stamp, sum and time.
func (s *Source) applyContent(name string, data []byte, next *entry, tentative bool) {
	path, e := s.path(name), s.entries[name]
	r := manifest.Decode(data, s.options(path, next.readAt))
	if tentative && (len(r.Failed) > 0 || len(bytes.TrimSpace(data)) == 0) {
		return
	}
	if tentative && e != nil && lacks(r.Content, e.Content) {
		s.pending[name] = delayedCheck{at: next.readAt.Add(writeDelay)}
		return
	}
	if has, room := contentSizeOf(r.Content), s.remaining(name); !has.fits(room) {
		next.rejectedSize = has
		r = overLimitResult(path, has, room, next.readAt)
	}
	old := s.previousContent(path, e, len(r.Failed) > 0)
	next.Content, next.problems = r.Reuse(old), r.Problems
	next.addLastGood(old, r.Failed)
	next.size = contentSizeOf(next.Content)
	if len(r.Failed) == 0 {
		s.lastGood.Put(path, data, r.HasSecret())
	}
	s.put(name, next, e)
}

func (s *Source) options(path string, now time.Time) manifest.Options {
	return manifest.Options{NodeName: s.cfg.NodeName, Source: pod.SourceFile, Origin: path, Now: now, Validation: s.cfg.Validation, Features: s.cfg.Features, Mirrored: s.cfg.Mirrored}
}

// previousContent returns the previous content of the file: as last seen by this process or, for
// a file that is broken when podd starts, by the process before it.
func (s *Source) previousContent(path string, e *entry, broken bool) manifest.Content {
	switch {
	case e != nil:
		return e.Content
	case broken:
		if version := s.lastGood.Load(path); version != nil {
			had := manifest.Decode(version, s.options(path, time.Now())).Content
			if had.HasSecret() { // an older podd may have left it on disk
				s.lastGood.Put(path, version, true)
			}
			return had
		}
	}
	return manifest.Content{}
}

func (s *Source) put(name string, next, old *entry) {
	s.entries[name] = next
	if old == nil || !slices.Equal(old.Pods, next.Pods) || !slices.Equal(old.Objects, next.Objects) || !sameProblems(old.problems, next.problems) {
		s.changed = true
	}
}

func sameProblems(a, b []pod.Problem) bool {
	return slices.EqualFunc(a, b, func(x, y pod.Problem) bool {
		x.Since = y.Since
		return x == y
	})
}

// lacks reports whether next lacks any pod or object of old.
func lacks(next, old manifest.Content) bool {
	return slices.ContainsFunc(old.Pods, func(o *pod.Desired) bool {
		return !slices.ContainsFunc(next.Pods, func(p *pod.Desired) bool { return p.UID() == o.UID() })
	}) || slices.ContainsFunc(old.Objects, func(o *pod.Object) bool {
		return !slices.ContainsFunc(next.Objects, func(n *pod.Object) bool { return n.Key() == o.Key() })
	})
}

// addLastGood adds the last good versions of the failed documents to the entry's content.
func (e *entry) addLastGood(old manifest.Content, failed []manifest.Failed) {
	retained := manifest.Retain(e.Content, old, failed)
	e.Pods = append(e.Pods, retained.Pods...)
	e.Objects = append(e.Objects, retained.Objects...)
	manifest.MarkRetained(e.problems, retained, failed, old)
}
