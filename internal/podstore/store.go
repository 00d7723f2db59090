package podstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"

	"podd/internal/checkpoint"
	"podd/internal/pod"
)

const (
	version = 1
	// maxFiles bounds the files that ReadAll reads: more pods than any node runs.
	maxFiles = 4096
)

// Store is a directory of pods.
type Store struct {
	// Dir belongs to the store alone, and is made when needed; "" stores nothing.
	Dir string
	// Durable files survive a power failure, and a removed one does not come back after it.
	// Other files are useless after a reboot.
	Durable bool
	// MaxBytes bounds a file.
	MaxBytes int64
}

// Entry is a pod of a store, and where its source found it: a file's path or a URL.
type Entry struct {
	Origin string
	Pod    *v1.Pod
}

// record is the content of a file.
type record struct {
	Version int `json:"version"`
	// Origin is stored under its old name, from when only pods of apiservers were stored.
	Origin string `json:"server"`
	// Sum is the checksum of Pod exactly as it is in the file: podd does not run what a bad
	// disk has changed.
	Sum string          `json:"sum"`
	Pod json.RawMessage `json:"pod"`
}

// codec converts an Entry.
var codec = checkpoint.Codec{Encode: encode, Decode: decode}

func (s Store) files() checkpoint.Dir[Entry] {
	return checkpoint.Dir[Entry]{
		Path: s.Dir, MaxFiles: maxFiles, Check: checkEntry,
		// A durable file that is there may not be on the disk yet.
		Format: checkpoint.Format{Codec: codec, Durable: s.Durable, SkipUnchanged: !s.Durable, OwnerOnly: true, MaxBytes: s.MaxBytes},
	}
}

// Write stores a pod in one step, without its managed fields. If the same pod is stored, it
// writes nothing, unless that may not be on the disk.
func (s Store) Write(e Entry) error {
	if s.Dir == "" {
		return nil
	}
	if !pod.IsFileName(e.Pod.UID) {
		return fmt.Errorf("the UID %.100q is no name for a file", e.Pod.UID)
	}
	return s.files().File(string(e.Pod.UID)).Write(e)
}

// Remove removes a pod, if it is stored.
func (s Store) Remove(uid pod.UID) error {
	if !pod.IsFileName(uid) {
		return nil
	}
	return s.files().Remove(string(uid))
}

// Retain removes all files except those of these pods.
func (s Store) Retain(keep func(pod.UID) bool) error {
	return s.files().Retain(func(key string) bool { return keep(pod.UID(key)) })
}

// UIDs names the pods that have files, even if only from an interrupted write, without
// reading them.
func (s Store) UIDs() ([]pod.UID, error) {
	keys, err := s.files().Keys()
	uids := make([]pod.UID, len(keys))
	for i, key := range keys {
		uids[i] = pod.UID(key)
	}
	return uids, err
}

// ReadAll returns the stored pods, and the files that cannot be read.
func (s Store) ReadAll() (found []Entry, damaged []checkpoint.DamagedFile) {
	damaged = s.files().ReadAll(func(_ string, e Entry) { found = append(found, e) })
	return found, damaged
}

// ReadOne returns one pod; fs.ErrNotExist if it is not stored.
func (s Store) ReadOne(uid pod.UID) (Entry, error) {
	if !pod.IsFileName(uid) {
		return Entry{}, fs.ErrNotExist
	}
	return s.files().File(string(uid)).Read()
}

func encode(value any) ([]byte, error) {
	e := value.(Entry)
	plain := *e.Pod
	plain.ManagedFields = nil
	text, err := json.Marshal(&plain)
	if err != nil {
		return nil, err
	}
	return json.Marshal(record{version, e.Origin, checkpoint.Sum(text), text})
}

func decode(content []byte, value any) error {
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return fmt.Errorf("it cannot be decoded: %w", err)
	}
	switch {
	case r.Version != version:
		return fmt.Errorf("its format is version %d, and this podd reads version %d", r.Version, version)
	case checkpoint.Sum(r.Pod) != r.Sum:
		return errors.New("its checksum is wrong: the file was damaged")
	}
	p := &v1.Pod{}
	if err := json.Unmarshal(r.Pod, p); err != nil {
		return fmt.Errorf("it cannot be decoded: %w", err)
	}
	*value.(*Entry) = Entry{Origin: r.Origin, Pod: p}
	return nil
}

// checkEntry rejects a pod that does not belong to its file, and invalid names, since podd makes
// paths of them. The pod's source has checked the rest, and the checksum says that it has
// not changed.
func checkEntry(uid string, e *Entry) error {
	switch {
	case string(e.Pod.UID) != uid:
		return fmt.Errorf("it has the pod of UID %.100q", e.Pod.UID)
	case len(e.Pod.Spec.Containers) == 0:
		return errors.New("its pod has no containers")
	}
	return pod.CheckNames(e.Pod)
}
