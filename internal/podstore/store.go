package podstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/atomicfile"
	"podd/internal/pod"
)

const (
	version = 1
	// maxFiles bounds the files that Read reads: more pods than any node runs.
	maxFiles = 4096

	suffix = ".json"
	// interrupted is what atomicfile appends to the name of a file that it writes.
	interrupted = ".new"
)

// Store is a directory of pods.
type Store struct {
	// Dir is the store's alone, and made when needed; "" keeps nothing.
	Dir string
	// Durable files survive a power failure, and one that was removed does not come back
	// after it. Others are for what is of no use after a reboot.
	Durable bool
	// MaxBytes bounds a file.
	MaxBytes int64
}

// Entry is a pod of a store, and where its source found it: a file's path or a URL.
type Entry struct {
	Origin string
	Pod    *v1.Pod
}

// Unusable is a file that has no pod, and why.
type Unusable struct {
	Path string
	Err  error
}

// record is the content of a file.
type record struct {
	Version int `json:"version"`
	// Origin has the name that it had when only pods of apiservers were stored.
	Origin string `json:"server"`
	// Sum is the SHA-256 of Pod as it stands in the file: what a bad disk has changed does
	// not run.
	Sum string          `json:"sum"`
	Pod json.RawMessage `json:"pod"`
}

// Sum is the checksum of a stored pod.
func Sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

func (s Store) file(uid pod.UID) string { return filepath.Join(s.Dir, string(uid)+suffix) }

// Write stores a pod in one step, without who manages its fields. It writes nothing where
// the same is stored, unless that may not be on the disk.
func (s Store) Write(e Entry) error {
	if s.Dir == "" {
		return nil
	}
	if !pod.IsFileName(e.Pod.UID) {
		return fmt.Errorf("the UID %.100q is no name for a file", e.Pod.UID)
	}
	plain := *e.Pod
	plain.ManagedFields = nil
	text, err := json.Marshal(&plain)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(record{version, e.Origin, Sum(text), text}); err != nil {
		return err
	}
	if int64(len(text)) > s.MaxBytes {
		return s.errTooLong()
	}
	path := s.file(e.Pod.UID)
	if !s.Durable {
		if had, err := s.readPrivate(path); err == nil && bytes.Equal(had, text) {
			return nil
		}
	}
	if err := atomicfile.MkdirPrivate(s.Dir); err != nil {
		return err
	}
	if s.Durable {
		return atomicfile.WriteDurably(path, text, 0o600)
	}
	return atomicfile.Write(path, text, 0o600)
}

// Remove removes a pod, if it is stored.
func (s Store) Remove(uid pod.UID) error {
	if s.Dir == "" || !pod.IsFileName(uid) {
		return nil
	}
	path, removed := s.file(uid), false
	var errs []error
	for _, path := range []string{path, path + interrupted} {
		switch err := os.Remove(path); {
		case err == nil:
			removed = true
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	if removed {
		errs = append(errs, s.flush())
	}
	return errors.Join(errs...)
}

// Retain removes all files but those of these pods.
func (s Store) Retain(keep func(pod.UID) bool) error {
	entries, err := s.entries()
	errs := []error{err}
	removed := false
	for _, e := range entries {
		if uid, ok := strings.CutSuffix(e.Name(), suffix); !ok || !keep(pod.UID(uid)) {
			errs, removed = append(errs, os.RemoveAll(filepath.Join(s.Dir, e.Name()))), true
		}
	}
	if removed {
		errs = append(errs, s.flush())
	}
	return errors.Join(errs...)
}

// flush has the disk have the directory's names: a power failure must not bring back what
// was removed.
func (s Store) flush() error {
	if !s.Durable {
		return nil
	}
	f, err := os.Open(s.Dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// entries lists the directory; nothing for one that is not there yet.
func (s Store) entries() ([]fs.DirEntry, error) {
	if s.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// List names the pods of which there are files, be it an interrupted write, without
// reading them.
func (s Store) List() ([]pod.UID, error) {
	entries, err := s.entries()
	var uids []pod.UID
	for _, e := range entries {
		if uid, ok := strings.CutSuffix(strings.TrimSuffix(e.Name(), interrupted), suffix); ok {
			uids = append(uids, pod.UID(uid))
		}
	}
	return uids, err
}

// Read returns the pods that are stored, and the files that are of no use. An interrupted
// write is none of them: the version before it counts.
func (s Store) Read() (found []Entry, unusable []Unusable) {
	entries, err := s.entries()
	if err != nil {
		unusable = append(unusable, Unusable{s.Dir, err})
	}
	if len(entries) > maxFiles {
		unusable = append(unusable, Unusable{s.Dir, fmt.Errorf("there are %d files, and the first %d are read", len(entries), maxFiles)})
		entries = entries[:maxFiles]
	}
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			continue
		}
		path := filepath.Join(s.Dir, e.Name())
		entry, err := s.readFile(path, pod.UID(uid))
		if err != nil {
			unusable = append(unusable, Unusable{path, err})
			continue
		}
		found = append(found, entry)
	}
	return found, unusable
}

// ReadOne returns one pod; fs.ErrNotExist if it is not stored.
func (s Store) ReadOne(uid pod.UID) (Entry, error) {
	if s.Dir == "" || !pod.IsFileName(uid) {
		return Entry{}, fs.ErrNotExist
	}
	return s.readFile(s.file(uid), uid)
}

func (s Store) readFile(path string, uid pod.UID) (Entry, error) {
	text, err := s.readPrivate(path)
	if err != nil {
		return Entry{}, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return Entry{}, fmt.Errorf("it cannot be decoded: %w", err)
	}
	switch {
	case r.Version != version:
		return Entry{}, fmt.Errorf("its format is version %d, and this podd reads version %d", r.Version, version)
	case Sum(r.Pod) != r.Sum:
		return Entry{}, errors.New("its checksum is wrong: the file was damaged")
	}
	p := &v1.Pod{}
	if err := json.Unmarshal(r.Pod, p); err != nil {
		return Entry{}, fmt.Errorf("it cannot be decoded: %w", err)
	}
	return Entry{Origin: r.Origin, Pod: p}, check(p, uid)
}

func (s Store) errTooLong() error {
	return fmt.Errorf("it is longer than the limit of %d MiB", s.MaxBytes>>20)
}

// readPrivate reads a regular file of a bounded size that nobody but its owner, who runs
// podd, may write.
func (s Store) readPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errors.New("it is not a regular file")
	case int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0:
		return nil, errors.New("others than podd's user may write it")
	}
	text, err := io.ReadAll(io.LimitReader(f, s.MaxBytes+1))
	if int64(len(text)) > s.MaxBytes {
		return nil, s.errTooLong()
	}
	return text, err
}

// check rejects a pod whose names are no names: paths are made of them. Its source has
// check rejects a stored pod that is not the file's. Its source has checked what
// pod.CheckNames does not, and the checksum says that it is still that.
func check(p *v1.Pod, uid pod.UID) error {
	switch {
	case p.UID != uid:
		return fmt.Errorf("it has the pod of UID %.100q", p.UID)
	case len(p.Spec.Containers) == 0:
		return errors.New("its pod has no containers")
	}
	return pod.CheckNames(p)
}
