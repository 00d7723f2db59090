package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"podd/internal/checkpoint"
)

// record is upstream's format, so that the pods keep their ranges when a node switches
// between podd and the kubelet.
type record struct {
	UIDMappings []mapping `json:"uidMappings"`
	GIDMappings []mapping `json:"gidMappings"`
}

type mapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

func recordFile(path string) checkpoint.File[record] {
	return checkpoint.File[record]{Path: path, Format: checkpoint.Format{Mode: 0o644, DirMode: 0o750}}
}

// readRecord returns the zero Range if there is no record, or an empty one, as after a
// power failure, which no container survives.
func readRecord(file string) (Range, error) {
	rec, err := recordFile(file).Read()
	if errors.Is(err, fs.ErrNotExist) || err != nil && isEmpty(file) {
		return Range{}, nil
	}
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		return Range{}, err
	}
	if err != nil {
		return Range{}, fmt.Errorf("%s: invalid user namespace mappings file: %w", file, err)
	}
	if len(rec.UIDMappings) != 1 || len(rec.GIDMappings) != 1 || rec.UIDMappings[0] != rec.GIDMappings[0] {
		return Range{}, fmt.Errorf("%s: invalid user namespace mappings file: it must have one mapping, the same for users and groups", file)
	}
	m := rec.UIDMappings[0]
	if m.ContainerID != 0 || m.HostID < DefaultLength || m.Length < DefaultLength || uint64(m.HostID)+uint64(m.Length) > 1<<32 {
		return Range{}, fmt.Errorf("%s: invalid user namespace mappings file: container ID %d onto %d, %d IDs long", file, m.ContainerID, m.HostID, m.Length)
	}
	return Range{First: m.HostID, Length: m.Length}, nil
}

func writeRecord(file string, r Range) error {
	m := []mapping{{HostID: r.First, Length: r.Length}}
	return recordFile(file).Write(record{UIDMappings: m, GIDMappings: m})
}

func isEmpty(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Size() == 0
}
