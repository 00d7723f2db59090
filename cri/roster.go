package cri

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"podd/internal/pod"
)

const (
	// streamSettles is how long it takes, at most, until the runtime sends events on a
	// stream that was opened: CRI has no acknowledgement. The first event shows it, too. It
	// is shorter than the time after which pleg relists, so that this list counts.
	streamSettles = time.Second
	// maxRemovedIDs bounds the IDs of removed sandboxes and containers that the roster
	// remembers, for events about them that have not arrived yet.
	maxRemovedIDs = 4096
)

// roster knows by ID what the runtime has of each pod. So observing a pod costs the same no
// matter what else runs on the node: for a list, a runtime walks over everything it has.
//
// An entry is reliable while podd notices everything that could change it: a list that
// began after the event stream was open, everything that podd itself has created and
// removed since, and events about anything else. Any doubt (a create that failed, an event
// about something unknown, a lost stream, another agent's part of the pod) makes podd list
// the pod again, and so does a runtime without an event stream.
type roster struct {
	mu sync.Mutex // guards everything below
	// seq orders lists, calls and events: each has a number of its own.
	seq uint64
	// reliableSince is the number from which on no event was missed; 0 without a stream.
	reliableSince uint64
	// stream is the number of the current stream.
	stream uint64
	// lastFullList is the number of the last list of everything. If it counts, a pod without
	// an entry has nothing.
	lastFullList uint64
	pods         map[pod.UID]*entry
	// owners maps each sandbox and container to its pod.
	owners map[string]pod.UID
	// removed are the last IDs that were removed, with their pods; oldest has their order.
	removed map[string]pod.UID
	oldest  []string
}

// entry is what is known about a pod.
type entry struct {
	// listed is the number of the last list of the pod, or of the first creation for a pod
	// that certainly had nothing.
	listed uint64
	// failedCreateSeq is the number of the last create that failed, which may have left
	// something; 0 for none.
	failedCreateSeq uint64
	// shared says that another agent owns some of the pod.
	shared     bool
	sandboxes  map[string]uint64 // ID → number of its creation by podd; 0 for those from a list
	containers map[string]containerEntry
	unknownIDs map[string]uint64 // IDs that only events named → number of the last event
}

type containerEntry struct {
	sandbox string
	created uint64 // as in sandboxes
}

func newRoster() *roster {
	return &roster{pods: map[pod.UID]*entry{}, owners: map[string]pod.UID{}, removed: map[string]pod.UID{}}
}

func (r *roster) nextLocked() uint64 {
	r.seq++
	return r.seq
}

// begin returns the number of a list that is about to start.
func (r *roster) begin() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nextLocked()
}

// streamOpened records that a stream was requested. Call the result when it ends.
func (r *roster) streamOpened() (lost func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := r.nextLocked()
	r.stream = number
	settled := time.AfterFunc(streamSettles, func() { r.markStreamReady(number) })
	return func() {
		settled.Stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.stream == number {
			r.stream, r.reliableSince = 0, 0
		}
	}
}

// markStreamReady records that the stream of that number is open; 0 is the current one.
func (r *roster) markStreamReady(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream != 0 && (number == 0 || r.stream == number) && r.reliableSince == 0 {
		r.reliableSince = r.nextLocked()
	}
}

func (r *roster) entryLocked(uid pod.UID) *entry {
	e := r.pods[uid]
	if e == nil {
		e = &entry{sandboxes: map[string]uint64{}, containers: map[string]containerEntry{}, unknownIDs: map[string]uint64{}}
		if r.reliableSince != 0 && r.lastFullList > r.reliableSince {
			e.listed = r.nextLocked() // nothing was there
		}
		r.pods[uid] = e
	}
	return e
}

// known returns the IDs of everything that a pod has; containers come with their sandbox's.
// ok is false if the pod must be listed.
func (r *roster) known(uid pod.UID) (sandboxes []string, containers map[string]string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reliableSince == 0 {
		return nil, nil, false
	}
	e := r.pods[uid]
	if e == nil {
		return nil, nil, r.lastFullList > r.reliableSince
	}
	if e.listed < r.reliableSince || e.failedCreateSeq != 0 || e.shared || len(e.unknownIDs) > 0 {
		return nil, nil, false
	}
	containers = make(map[string]string, len(e.containers))
	for id, c := range e.containers {
		containers[id] = c.sandbox
	}
	return slices.Collect(maps.Keys(e.sandboxes)), containers, true
}

// createdSandbox says that podd created a sandbox.
func (r *roster) createdSandbox(uid pod.UID, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entryLocked(uid)
	e.sandboxes[id] = r.nextLocked()
	delete(e.unknownIDs, id)
	r.owners[id] = uid
}

// createdContainer says that podd created a container.
func (r *roster) createdContainer(uid pod.UID, id, sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entryLocked(uid)
	e.containers[id] = containerEntry{sandbox, r.nextLocked()}
	delete(e.unknownIDs, id)
	r.owners[id] = uid
}

// createFailed says that a create for a pod failed: it may have left something.
func (r *roster) createFailed(uid pod.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entryLocked(uid).failedCreateSeq = r.nextLocked()
}

// removedContainer says that podd removed a container.
func (r *roster) removedContainer(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.pods[r.owners[id]]; e != nil {
		delete(e.containers, id)
		delete(e.unknownIDs, id)
	}
	r.markRemovedLocked(id)
}

// removedSandbox says that podd removed a sandbox, and returns its pod. The sandbox's
// containers went with it.
func (r *roster) removedSandbox(id string) pod.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := r.owners[id]
	if e := r.pods[uid]; e != nil {
		for k, c := range e.containers {
			if c.sandbox == id {
				delete(e.containers, k)
				r.markRemovedLocked(k)
			}
		}
		delete(e.sandboxes, id)
		delete(e.unknownIDs, id)
		r.dropLocked(uid, e)
	}
	r.markRemovedLocked(id)
	return uid
}

// markRemovedLocked remembers that an ID is gone.
func (r *roster) markRemovedLocked(id string) {
	uid := r.owners[id]
	delete(r.owners, id)
	if r.isRemovedLocked(id) {
		return
	}
	r.removed[id] = uid
	r.oldest = append(r.oldest, id)
	if len(r.oldest) > maxRemovedIDs {
		delete(r.removed, r.oldest[0])
		r.oldest = r.oldest[1:]
	}
}

func (r *roster) isRemovedLocked(id string) bool {
	_, removed := r.removed[id]
	return removed
}

// dropLocked forgets a pod that has nothing left, if the absence of an entry says the same.
func (r *roster) dropLocked(uid pod.UID, e *entry) {
	if len(e.sandboxes)+len(e.containers)+len(e.unknownIDs) == 0 && e.failedCreateSeq == 0 && r.reliableSince != 0 && r.lastFullList > r.reliableSince && e.listed > r.reliableSince {
		delete(r.pods, uid)
	}
}

// event records what the runtime's stream says about an ID. sandbox is the sandbox of its
// pod; gone says that the ID was removed. It returns the pod, or "" if neither the event
// nor anything earlier identifies it.
func (r *roster) event(uid pod.UID, id string, gone bool) pod.UID {
	r.markStreamReady(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid == "" {
		uid = cmp.Or(r.owners[id], r.removed[id])
	}
	if uid == "" {
		return ""
	}
	if gone {
		if e := r.pods[uid]; e != nil {
			delete(e.sandboxes, id)
			delete(e.containers, id)
			delete(e.unknownIDs, id)
			r.dropLocked(uid, e)
		}
		r.markRemovedLocked(id)
		return uid
	}
	if r.isRemovedLocked(id) {
		return uid
	}
	e := r.entryLocked(uid)
	_, sandbox := e.sandboxes[id]
	_, known := e.containers[id]
	if !sandbox && !known {
		e.unknownIDs[id] = r.nextLocked()
	}
	return uid
}

// podList is one pod's part of a list.
type podList struct {
	sandboxes  []string
	containers map[string]string // ID → sandbox
	// shared says that another agent owns some of it, or that podd did not make all of it.
	shared bool
}

// recordPodList records one pod's part of the list that began with that number.
func (r *roster) recordPodList(uid pod.UID, number uint64, l podList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordPodListLocked(uid, number, l)
}

// recordPodListLocked is recordPodList with mu held. It keeps what podd has created since the
// list began.
func (r *roster) recordPodListLocked(uid pod.UID, number uint64, l podList) {
	e := r.entryLocked(uid)
	maps.DeleteFunc(e.sandboxes, func(_ string, created uint64) bool { return created < number })
	maps.DeleteFunc(e.containers, func(_ string, c containerEntry) bool { return c.created < number })
	maps.DeleteFunc(e.unknownIDs, func(_ string, at uint64) bool { return at < number })
	for _, id := range l.sandboxes {
		if r.isRemovedLocked(id) {
			continue // since the list began
		}
		if _, ok := e.sandboxes[id]; !ok {
			e.sandboxes[id] = 0
		}
		r.owners[id] = uid
	}
	for id, sandbox := range l.containers {
		if r.isRemovedLocked(id) {
			continue
		}
		if _, ok := e.containers[id]; !ok {
			e.containers[id] = containerEntry{sandbox: sandbox}
		}
		r.owners[id] = uid
	}
	for id := range e.unknownIDs {
		if _, ok := e.sandboxes[id]; ok {
			delete(e.unknownIDs, id)
		} else if _, ok := e.containers[id]; ok {
			delete(e.unknownIDs, id)
		}
	}
	e.shared = l.shared
	e.listed = max(e.listed, number)
	if e.failedCreateSeq < number {
		e.failedCreateSeq = 0
	}
	r.dropLocked(uid, e)
}

// recordFullList records a list of everything that began with that number.
func (r *roster) recordFullList(number uint64, lists map[pod.UID]podList) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.pods {
		if _, listed := lists[uid]; !listed {
			r.recordPodListLocked(uid, number, podList{})
		}
	}
	for uid, l := range lists {
		r.recordPodListLocked(uid, number, l)
	}
	r.lastFullList = max(r.lastFullList, number)
	maps.DeleteFunc(r.owners, func(id string, uid pod.UID) bool {
		e := r.pods[uid]
		if e == nil {
			return true
		}
		_, sandbox := e.sandboxes[id]
		_, known := e.containers[id]
		_, heard := e.unknownIDs[id]
		return !sandbox && !known && !heard
	})
	for uid, e := range r.pods {
		r.dropLocked(uid, e)
		if len(e.sandboxes)+len(e.containers)+len(e.unknownIDs) == 0 && e.failedCreateSeq == 0 {
			delete(r.pods, uid)
		}
	}
}
