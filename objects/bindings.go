package objects

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"podd/internal/checkpoint"
	"podd/internal/pod"
	"podd/objects/claims"
)

// bindingsFile is the content of Config.BindingsFile, in JSON.
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
	t := claimTable{nodeLabels: cfg.NodeLabels, file: newBindings(cfg.BindingsFile), bound: map[string]claims.Ref{}, unseen: map[string]bool{}, holders: map[string]pod.UID{}, remoteHolders: map[string]pod.UID{}}
	f, err := t.file.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return t
	}
	if err != nil {
		where, moved := t.file.SetAside()
		err = errors.Join(err, moved)
		cfg.Log.Warn("cannot read the bindings of claims: binding them anew", "file", t.file.Path, "hint", where, "err", err)
		t.fileProblems = []pod.Problem{{Origin: t.file.Path, Since: time.Now(),
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

// newBindings is durable: what a pod then writes to its volume may survive a power failure,
// and afterwards no other claim may get the volume.
func newBindings(path string) checkpoint.File[bindingsFile] {
	return checkpoint.File[bindingsFile]{Path: path, Format: checkpoint.Format{Codec: checkpoint.JSONLine, DirMode: 0o750, Durable: true}, Check: func(f *bindingsFile) error {
		if f.Version != bindingsVersion {
			return fmt.Errorf("unsupported version %d: this podd reads version %d", f.Version, bindingsVersion)
		}
		return nil
	}}
}

// saveClaims writes the bindings if they have changed since the last write.
func (s *Store) saveClaims() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	t := &s.claims
	version := t.version
	records := make([]bindingRecord, 0, len(t.bound))
	for volume, ref := range t.bound {
		records = append(records, bindingRecord{Volume: volume, Namespace: ref.Namespace, Claim: ref.Name, Owner: ref.Owner, Holder: t.holders[volume]})
	}
	f := bindingsFile{Version: bindingsVersion, Bindings: records, Holders: maps.Clone(t.remoteHolders)}
	done := version == t.savedVersion
	s.mu.Unlock()
	if done {
		return nil
	}
	slices.SortFunc(records, func(a, b bindingRecord) int { return cmp.Compare(a.Volume, b.Volume) })
	if err := t.file.Write(f); err != nil {
		return fmt.Errorf("cannot save the bindings of claims: %w", err)
	}
	s.mu.Lock()
	t.savedVersion = version
	s.mu.Unlock()
	return nil
}
