package objects

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Register records which objects a pod names: from now on, the listeners are called
// for their changes. It replaces what was registered for the same UID.
func (s *Store) Register(p *v1.Pod) {
	keys, made := pod.ObjectsOf(p), claimsOf(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.unregisterLocked(p.UID)
	if len(keys) == 0 {
		return
	}
	s.pods[p.UID] = named{name: p.Namespace + "/" + p.Name, keys: keys}
	for _, key := range keys {
		if s.users[key] == nil {
			s.users[key] = make(map[pod.UID]bool)
		}
		s.users[key][p.UID] = true
	}
	if s.claims.add(made) || had {
		s.bindLocked()
		s.pokeLocked()
	}
}

// Unregister forgets a pod; one that is not registered is no error. The claims of
// its ephemeral volumes go with it, and those who wait for a volume that one pod at
// a time may use hear of it.
func (s *Store) Unregister(uid pod.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.pods[uid].keys
	had := s.unregisterLocked(uid)
	delete(s.changed, uid)
	for _, key := range left {
		if s.claims.heldBy(key, uid) {
			s.changedLocked(key)
		}
	}
	if had {
		s.bindLocked()
	}
	s.pokeLocked()
}

// unregisterLocked says whether claims went with the pod.
func (s *Store) unregisterLocked(uid pod.UID) (claims bool) {
	for _, key := range s.pods[uid].keys {
		delete(s.users[key], uid)
		if len(s.users[key]) == 0 {
			delete(s.users, key)
		}
	}
	delete(s.pods, uid)
	return s.claims.remove(uid)
}

// Contents tells the content of each object that a registered pod names and that
// is there: the number is another where the content is (pod.Contents). What a claim
// is bound to is no content.
func (s *Store) Contents(uid pod.UID) map[pod.ObjectKey]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[pod.ObjectKey]uint64)
	for _, key := range s.pods[uid].keys {
		if e := s.entries[key]; e.object != nil && key.Kind != pod.KindPersistentVolumeClaim && key.Kind != pod.KindCSIDriver {
			all[key] = e.content
		}
	}
	return all
}

// Epoch names the key of the numbers of Contents: those of an earlier Store with the
// same can be compared with this one's. Empty where no other's can.
func (s *Store) Epoch() string { return s.epoch }

// Use is an object and who names it.
type Use struct {
	*pod.Object
	// Pods are namespace/names, sorted.
	Pods []string
	// Since is when this Store's sources first noticed an object of that key; an edit
	// leaves it.
	Since time.Time
}

// List returns all objects, by namespace, kind and name.
func (s *Store) List() []Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(s.entries), func(a, b pod.ObjectKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	list := make([]Use, 0, len(keys))
	for _, key := range keys {
		use := Use{Object: s.entries[key].object, Since: s.entries[key].since}
		for uid := range s.users[key] {
			use.Pods = append(use.Pods, s.pods[uid].name)
		}
		slices.Sort(use.Pods)
		use.Pods = slices.Compact(use.Pods)
		list = append(list, use)
	}
	return list
}
