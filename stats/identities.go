package stats

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"podd/internal/pod"
)

const (
	// identifyTimeout bounds the question to the runtime within a reading.
	identifyTimeout = 2 * time.Second
	// unknownIDRetry is how long podd does not ask for an ID that the runtime did not know: it
	// may belong to a process that the runtime has lost.
	unknownIDRetry = 5 * time.Second
)

// identities are those of the sandboxes and containers with a cgroup; the identity of an ID
// never changes.
type identities struct {
	byID map[string]pod.Identity
	// pods are the names of pods, by normalized UID.
	pods map[pod.UID]pod.Identity
	// unknown are the IDs that the runtime did not know, and since when.
	unknown map[string]time.Time
}

func newIdentities() identities {
	return identities{map[string]pod.Identity{}, map[pod.UID]pod.Identity{}, map[string]time.Time{}}
}

// normalizeUID returns a UID as it is compared: systemd's names have underscores for dashes.
func normalizeUID(uid pod.UID) pod.UID { return pod.UID(strings.ReplaceAll(string(uid), "-", "_")) }

// refresh asks the runtime if a group is new. Without an answer the new ones are left out.
func (n *identities) refresh(ctx context.Context, groups []Group, identify func(context.Context) ([]pod.Identity, error)) error {
	if !n.hasUnknown(groups) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	all, err := identify(ctx)
	if err != nil {
		return fmt.Errorf("ask the runtime which containers it has: %w", err)
	}
	for _, one := range all {
		n.byID[one.ID] = one
		n.pods[normalizeUID(one.UID)] = pod.Identity{UID: one.UID, Pod: one.Pod, Namespace: one.Namespace}
	}
	now := time.Now()
	for _, g := range groups {
		if _, ok := n.byID[g.ID]; g.ID != "" && !ok {
			n.unknown[g.ID] = now
		}
	}
	return nil
}

func (n *identities) hasUnknown(groups []Group) bool {
	for _, g := range groups {
		if _, ok := n.byID[g.ID]; g.ID != "" && !ok && time.Since(n.unknown[g.ID]) >= unknownIDRetry {
			return true
		}
	}
	return false
}

// lookup returns what a group is. Above the pods that is nothing, and known.
func (n *identities) lookup(g Group) (who pod.Identity, known bool) {
	switch {
	case g.ID != "":
		who, known = n.byID[g.ID]
	case g.Pod != "":
		who, known = n.pods[normalizeUID(g.Pod)]
	default:
		known = true
	}
	return who, known
}

// forget drops what is not among the groups.
func (n *identities) forget(groups []Group) {
	ids, uids := map[string]bool{}, map[pod.UID]bool{}
	for _, g := range groups {
		ids[g.ID] = true
		uids[normalizeUID(g.Pod)] = true
	}
	maps.DeleteFunc(n.byID, func(id string, _ pod.Identity) bool { return !ids[id] })
	maps.DeleteFunc(n.unknown, func(id string, _ time.Time) bool { return !ids[id] })
	maps.DeleteFunc(n.pods, func(uid pod.UID, _ pod.Identity) bool { return !uids[uid] })
}
