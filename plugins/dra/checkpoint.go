package dra

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"podd/internal/checkpoint"
	"podd/internal/pod"
)

// newCheckpoint is durable, because podd must know after a power failure what was prepared.
func newCheckpoint(path string) checkpoint.File[checkpointData] {
	return checkpoint.File[checkpointData]{Path: path, Format: checkpoint.Format{Codec: checkpoint.Checksummed, Durable: true}, Check: func(s *checkpointData) error {
		if s.Version != 1 {
			return fmt.Errorf("version %d of it is not known", s.Version)
		}
		return nil
	}}
}

type checkpointData struct {
	Version int          `json:"version"`
	Claims  []savedClaim `json:"claims"`
}

type savedClaim struct {
	Namespace  string              `json:"namespace"`
	Name       string              `json:"name"`
	UID        types.UID           `json:"uid"`
	Allocation string              `json:"allocation"`
	Pods       []pod.UID           `json:"pods"`
	Drivers    map[string][]device `json:"drivers"`
	// Skips are claim.skips. They are saved because podd may have to unprepare a claim that is
	// gone from the cluster.
	Skips map[string][]resourcev1.SkipNodeOperation `json:"skips,omitempty"`
}

// save writes the checkpoint if anything has changed. It blocks until the data is on disk.
func (m *Manager) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	revision := m.revision
	if revision == m.savedRevision {
		m.mu.Unlock()
		return nil
	}
	s := m.savedLocked()
	m.mu.Unlock()
	if err := m.checkpoint.Write(s); err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	m.mu.Lock()
	m.savedRevision = revision
	m.mu.Unlock()
	return nil
}

func (m *Manager) savedLocked() checkpointData {
	s := checkpointData{Version: 1, Claims: []savedClaim{}}
	for _, key := range slices.Sorted(maps.Keys(m.claims)) {
		c := m.claims[key]
		s.Claims = append(s.Claims, savedClaim{
			Namespace: c.namespace, Name: c.name, UID: c.uid, Allocation: c.allocation,
			Pods: slices.Sorted(maps.Keys(c.pods)), Drivers: maps.Clone(c.drivers), Skips: c.skips,
		})
	}
	return s
}

// restore reads the checkpoint. It sets a damaged one aside, and starts as if there were
// none.
func (m *Manager) restore() {
	s, err := m.checkpoint.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		var moved error
		m.checkpointHint, moved = m.checkpoint.SetAside()
		err = errors.Join(err, moved)
		m.checkpointError = err.Error()
		m.log.Error("cannot read which pods use which ResourceClaims: nobody unprepares those of an earlier podd", "file", m.checkpoint.Path, "hint", m.checkpointHint, "error", err)
		return
	}
	for _, of := range s.Claims {
		c := &claim{namespace: of.Namespace, name: of.Name, uid: of.UID, allocation: of.Allocation, pods: map[pod.UID]bool{}, drivers: of.Drivers, skips: of.Skips}
		for _, uid := range of.Pods {
			c.pods[uid] = true
		}
		m.claims[c.key()] = c
	}
}
