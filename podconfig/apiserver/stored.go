package apiserver

import (
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

// stored are the pods that the apiserver had given, one file for each, <uid>.json, that only
// root may read: a pod may contain passwords in env. Objects that a pod names, and its
// tokens, are not part of it.
type stored struct {
	// dir is the store's alone; "" for none.
	dir string
	// server and node are whose pods count: those of another cluster, or of the name that
	// this node had before, are of no use.
	server, node string
}

const (
	storedVersion = 1
	// maxStoredBytes bounds a file: an apiserver takes no object over 1.5 MiB.
	maxStoredBytes = 4 << 20
	// maxStored bounds the files that are read: more pods than any node runs.
	maxStored = 4096
	// maxStoredProblems bounds those that are told.
	maxStoredProblems = 20
)

// record is the content of a file.
type record struct {
	Version int    `json:"version"`
	Server  string `json:"server"`
	// Sum is the SHA-256 of Pod as it stands in the file: what a bad disk has changed does
	// not run.
	Sum string          `json:"sum"`
	Pod json.RawMessage `json:"pod"`
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}

func (s stored) file(uid pod.UID) string { return filepath.Join(s.dir, string(uid)+".json") }

// write stores a pod, durably.
func (s stored) write(p *v1.Pod) error {
	plain := *p
	plain.ManagedFields = nil // who wrote what is of no use here
	text, err := json.Marshal(&plain)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(record{storedVersion, s.server, sum(text), text}); err != nil {
		return err
	}
	if err := atomicfile.MkdirPrivate(s.dir); err != nil {
		return err
	}
	return atomicfile.WriteDurably(s.file(p.UID), text, 0o600)
}

// retain removes all files but those of these pods.
func (s stored) retain(keep func(pod.UID) bool) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	removed := false
	for _, e := range entries {
		if uid, ok := strings.CutSuffix(e.Name(), ".json"); !ok || !keep(pod.UID(uid)) {
			errs, removed = append(errs, os.RemoveAll(filepath.Join(s.dir, e.Name()))), true
		}
	}
	if removed { // a power failure must not bring a deleted pod back
		errs = append(errs, flush(s.dir))
	}
	return errors.Join(errs...)
}

// flush has the disk have the directory's names.
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// read returns the pods that were stored, and a problem for each file that is of no use.
func (s stored) read() (pods []*v1.Pod, problems []pod.Problem) {
	if s.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	bad := 0
	report := func(path string, err error) {
		if bad++; bad <= maxStoredProblems {
			problems = append(problems, pod.Problem{Origin: path, Message: "a stored pod of the cluster is not started: " + err.Error(),
				Hint: "the apiserver's answer replaces the file; without one, the pod does not run"})
		}
	}
	if err != nil {
		report(s.dir, err)
	}
	if len(entries) > maxStored {
		report(s.dir, fmt.Errorf("there are %d files, and the first %d are read", len(entries), maxStored))
		entries = entries[:maxStored]
	}
	for _, e := range entries {
		uid, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue // a write that was interrupted: the version before it counts
		}
		path := filepath.Join(s.dir, e.Name())
		p, err := s.readFile(path, pod.UID(uid))
		switch {
		case err != nil:
			report(path, err)
		case p != nil:
			pods = append(pods, p)
		}
	}
	if more := bad - maxStoredProblems; more > 0 {
		problems = append(problems, pod.Problem{Origin: s.dir, Message: fmt.Sprintf("%d more stored pods are not started for such reasons", more)})
	}
	return pods, problems
}

// readFile returns a stored pod; nil for another cluster's.
func (s stored) readFile(path string, uid pod.UID) (*v1.Pod, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("it cannot be decoded: %w", err)
	}
	switch {
	case r.Version != storedVersion:
		return nil, fmt.Errorf("its format is version %d, and this podd reads version %d", r.Version, storedVersion)
	case r.Server != s.server:
		return nil, nil
	case sum(r.Pod) != r.Sum:
		return nil, errors.New("its checksum is wrong: the file was damaged")
	}
	p := &v1.Pod{}
	if err := json.Unmarshal(r.Pod, p); err != nil {
		return nil, fmt.Errorf("it cannot be decoded: %w", err)
	}
	if p.Spec.NodeName != s.node {
		return nil, nil
	}
	return p, check(p, uid)
}

// readPrivate reads a regular file of a bounded size that nobody but its owner, who runs
// podd, may write.
func readPrivate(path string) ([]byte, error) {
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
	text, err := io.ReadAll(io.LimitReader(f, maxStoredBytes+1))
	if len(text) > maxStoredBytes {
		return nil, fmt.Errorf("it is longer than the limit of %d MiB", maxStoredBytes>>20)
	}
	return text, err
}

// check rejects a stored pod that is not the file's. An apiserver has checked what checkNames
// does not, and the checksum says that it is still that.
func check(p *v1.Pod, uid pod.UID) error {
	switch {
	case p.UID != uid:
		return fmt.Errorf("it has the pod of UID %.100q", p.UID)
	case len(p.Spec.Containers) == 0:
		return errors.New("its pod has no containers")
	}
	return checkNames(p)
}
