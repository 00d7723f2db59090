package objects

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"podd/internal/atomicfile"
	"podd/internal/pod"
	"podd/objects/claims"
)

// bindingsFile is the content of Config.Bindings, in JSON.
type bindingsFile struct {
	Version  int             `json:"version"`
	Bindings []bindingRecord `json:"bindings"`
	// Holders are the pods that use ReadWriteOncePod volumes of an apiserver, by the name
	// of the volume.
	Holders map[string]pod.UID `json:"clusterHolders,omitempty"`
}

// bindingsVersion is the version of the file that this podd reads and writes.
const bindingsVersion = 1

type bindingRecord struct {
	Volume    string `json:"volume"`
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	// Owner is the pod of an ephemeral volume, Holder the pod that uses a
	// ReadWriteOncePod volume.
	Owner  pod.UID `json:"owner,omitempty"`
	Holder pod.UID `json:"holder,omitempty"`
}

// loadClaims reads the bindings of an earlier podd. A file that cannot be read is set
// aside and reported as a problem; claims are then bound anew.
func loadClaims(cfg Config) claimTable {
	t := claimTable{node: cfg.Node, path: cfg.Bindings, bound: map[string]claims.Ref{}, unseen: map[string]bool{}, holders: map[string]pod.UID{}, remoteHolders: map[string]pod.UID{}}
	if t.path == "" {
		return t
	}
	f, err := readBindings(t.path)
	if err != nil {
		where, moved := atomicfile.SetAside(t.path)
		err = errors.Join(err, moved)
		cfg.Log.Warn("cannot read the bindings of claims: binding them anew", "file", t.path, "hint", where, "err", err)
		t.broken = []pod.Problem{{Origin: t.path, Since: time.Now(),
			Message: "cannot read the bindings of claims: " + err.Error(),
			Hint:    "they are bound anew; " + where + ", compare podd get pvc with it, and restart podd once that is right"}}
		return t
	}
	maps.Copy(t.remoteHolders, f.Holders)
	for _, r := range f.Bindings {
		t.bound[r.Volume] = claims.Ref{Key: claims.Key{Namespace: r.Namespace, Name: r.Claim}, Owner: r.Owner}
		t.unseen[r.Volume] = true
		if r.Holder != "" {
			t.holders[r.Volume] = r.Holder
		}
	}
	return t
}

func readBindings(path string) (f bindingsFile, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, err
	}
	if f.Version != bindingsVersion {
		return f, fmt.Errorf("unsupported version %d: this podd reads version %d", f.Version, bindingsVersion)
	}
	return f, nil
}

// saveClaims writes the bindings if they have changed since the last write.
func (s *Store) saveClaims() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	t := &s.claims
	version, path := t.version, t.path
	records := make([]bindingRecord, 0, len(t.bound))
	for volume, ref := range t.bound {
		records = append(records, bindingRecord{Volume: volume, Namespace: ref.Namespace, Claim: ref.Name, Owner: ref.Owner, Holder: t.holders[volume]})
	}
	f := bindingsFile{Version: bindingsVersion, Bindings: records, Holders: maps.Clone(t.remoteHolders)}
	done := version == t.saved || path == ""
	s.mu.Unlock()
	if done {
		return nil
	}
	slices.SortFunc(records, func(a, b bindingRecord) int { return cmp.Compare(a.Volume, b.Volume) })
	if err := writeBindings(path, f); err != nil {
		return fmt.Errorf("cannot save the bindings of claims: %w", err)
	}
	s.mu.Lock()
	t.saved = version
	s.mu.Unlock()
	return nil
}

// writeBindings returns once the bindings are on disk: what a pod writes to its volume
// next may survive a power failure, after which no other claim may get the volume.
func writeBindings(path string, f bindingsFile) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return atomicfile.WriteDurably(path, append(text, '\n'), 0o600)
}
