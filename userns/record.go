package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"podd/internal/atomicfile"
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

// readRecord returns the zero Range if there is no record, or an empty one, as after a
// power failure, which no container survives.
func readRecord(file string) (Range, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return Range{}, nil
	}
	if err != nil {
		return Range{}, err
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
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
	text, err := json.Marshal(record{UIDMappings: m, GIDMappings: m})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	return atomicfile.Write(file, text, 0o644)
}
