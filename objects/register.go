package objects

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Register records which objects a pod references: from now on, the listeners are called
// when they change. It replaces an earlier registration of the same UID.
func (s *Store) Register(p *v1.Pod) {
	keys, ephemeral := pod.ReferencedObjects(p), ephemeralClaimsOf(p)
	if pod.FromCluster(p) {
		ephemeral = nil // the cluster makes them
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.unregisterLocked(p.UID)
	s.updateClaimsLocked(p.UID, keys)
	if len(keys) == 0 {
		return
	}
	s.pods[p.UID] = registeredPod{name: p.Namespace + "/" + p.Name, keys: keys}
	s.updateVolumeKeysLocked(p.UID)
	if s.claims.add(ephemeral) || had {
		s.bindLocked()
	}
	s.pokeLocked()
}

// Unregister removes a pod; one that is not registered is ignored. The claims of its
// ephemeral volumes are removed, too, and the pods that wait for a ReadWriteOncePod volume
// that it held are notified.
func (s *Store) Unregister(uid pod.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.pods[uid].keys
	had := s.unregisterLocked(uid)
	delete(s.changed, uid)
	for _, key := range keys {
		if s.claims.heldBy(key, uid) || s.holdsLocked(key, uid) {
			s.changedLocked(key)
		}
	}
	s.updateClaimsLocked(uid, nil)
	if had {
		s.bindLocked()
	}
	s.pokeLocked()
}

// unregisterLocked removes a pod and says whether it had claims of ephemeral volumes.
func (s *Store) unregisterLocked(uid pod.UID) (claims bool) {
	s.removeUserLocked(uid, s.pods[uid].keys)
	s.removeUserLocked(uid, s.pods[uid].volumeKeys)
	delete(s.pods, uid)
	return s.claims.remove(uid)
}

func (s *Store) addUserLocked(uid pod.UID, keys []pod.ObjectKey) {
	for _, key := range keys {
		if s.users[key] == nil {
			s.users[key] = make(map[pod.UID]bool)
		}
		s.users[key][uid] = true
	}
}

func (s *Store) removeUserLocked(uid pod.UID, keys []pod.ObjectKey) {
	for _, key := range keys {
		delete(s.users[key], uid)
		if len(s.users[key]) == 0 {
			delete(s.users, key)
		}
	}
}

// Contents returns a hash of the content of each existing object that a registered pod
// references (pod.ContentHashes). It does not cover the volume that a claim is bound to.
func (s *Store) Contents(uid pod.UID) map[pod.ObjectKey]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[pod.ObjectKey]uint64)
	for _, key := range s.pods[uid].keys {
		e := s.entryLocked(key)
		key.Cluster = false // all of one pod are, or none is
		if e.object != nil && restartsPods(key.Kind) {
			all[key] = e.contentHash
		}
	}
	return all
}

// restartsPods says whether a change of an object of that kind restarts a pod, if the pod
// asks for that: not a claim, a driver, or authorities, which programs read again.
func restartsPods(kind string) bool {
	switch kind {
	case pod.KindPersistentVolumeClaim, pod.KindCSIDriver, pod.KindRuntimeClass, pod.KindClusterTrustBundle, pod.KindSignerTrustBundles:
		return false
	}
	return true
}

// Epoch identifies the key of the hashes that Contents returns: hashes from Stores with the
// same epoch are comparable. It is empty if only this Store has the key.
func (s *Store) Epoch() string { return s.epoch }

// UsedObject is an object and the pods that reference it.
type UsedObject struct {
	*pod.Object
	// Pods are pods as namespace/name, sorted.
	Pods []string
	// Since is when this Store's sources first noticed an object of that key; an edit does
	// not change it.
	Since time.Time
}

// List returns all objects, sorted by namespace, kind and name.
func (s *Store) List() []UsedObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(s.entries), func(a, b pod.ObjectKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	list := make([]UsedObject, 0, len(keys))
	for _, key := range keys {
		use := UsedObject{Object: s.entries[key].object, Since: s.entries[key].since}
		for uid := range s.users[key] {
			use.Pods = append(use.Pods, s.pods[uid].name)
		}
		slices.Sort(use.Pods)
		use.Pods = slices.Compact(use.Pods)
		list = append(list, use)
	}
	return list
}
