package podconfig

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"podd/internal/pod"
)

// desiredState is the desired state: the last snapshot of each source, and the pods that were
// delivered to the agent. It is pure: no locks, no clock.
type desiredState struct {
	// order of the sources decides which pod gets a name that no pod holds.
	order []pod.Source
	// latest is each source's last snapshot; a source without an entry is not ready.
	latest map[pod.Source][]*pod.Desired
	// delivered holds the pods that the agent has, by source and UID.
	delivered map[pod.Source]map[pod.UID]*pod.Desired
	// provisional holds the sources with a provisional last snapshot.
	provisional map[pod.Source]bool
	// holders holds the delivered pods by name.
	holders map[podKey]*pod.Desired
	// objects is the same for ConfigMaps, Secrets, volumes and claims.
	objects objectSet
}

func newDesiredState(order []pod.Source) *desiredState {
	return &desiredState{order: order, latest: map[pod.Source][]*pod.Desired{},
		delivered: map[pod.Source]map[pod.UID]*pod.Desired{}, provisional: map[pod.Source]bool{}, holders: map[podKey]*pod.Desired{},
		objects: objectSet{latest: map[pod.Source][]*pod.Object{}}}
}

// merge applies the snapshots of some sources. It returns the changes in the order in which
// they must be sent, removals first, and the pods that do not run because another pod has their
// name.
func (s *desiredState) merge(snaps map[pod.Source]Snapshot) (removes, rest []pod.Update, losers []podDuplicate) {
	first := map[pod.Source]bool{}
	for name, snap := range snaps {
		if snap.Incomplete {
			continue
		}
		_, spoke := s.latest[name]
		first[name] = !snap.Provisional && (!spoke || s.provisional[name])
		s.provisional[name] = snap.Provisional
		s.latest[name] = snap.Pods
		s.objects.latest[name] = snap.Objects
	}
	chosen, losers := s.resolveNameConflicts()
	for _, name := range s.order {
		want, had := chosen[name], s.delivered[name]
		delivered := make(map[pod.UID]*pod.Desired, len(want))
		s.delivered[name] = delivered
		by := map[pod.Op][]*pod.Desired{}
		for _, d := range want {
			delivered[d.UID()] = d
			if op := change(had[d.UID()], d); op != "" {
				by[op] = append(by[op], d)
			}
		}
		for uid, d := range had {
			if _, ok := delivered[uid]; !ok {
				by[pod.OpRemove] = append(by[pod.OpRemove], d)
			}
		}
		if gone := by[pod.OpRemove]; len(gone) > 0 {
			slices.SortFunc(gone, byPlace)
			// A removal that comes with the first whole set is provisional: the set's additions
			// follow later, and only then does the reader know the set.
			removes = append(removes, pod.Update{Op: pod.OpRemove, Source: name, Pods: gone, Provisional: s.provisional[name] || first[name]})
		}
		for _, op := range []pod.Op{pod.OpAdd, pod.OpUpdate, pod.OpDelete, pod.OpReconcile} {
			if len(by[op]) > 0 || op == pod.OpAdd && first[name] {
				rest = append(rest, pod.Update{Op: op, Source: name, Pods: by[op], Provisional: s.provisional[name]})
			}
		}
	}
	return removes, rest, losers
}

// staticPods returns the pods of all sources except the apiserver, and whether each of these
// sources is ready.
func (s *desiredState) staticPods() (pods []*pod.Desired, complete bool) {
	complete = true
	for _, name := range s.order {
		if name == pod.SourceAPIServer {
			continue
		}
		_, ready := s.latest[name]
		complete = complete && ready
		for _, d := range s.delivered[name] {
			pods = append(pods, d)
		}
	}
	return pods, complete
}

// change returns the operation that leads from had to want, for one UID.
func change(had, want *pod.Desired) pod.Op {
	switch {
	case had == nil:
		return pod.OpAdd
	case had == want || had.Pod == want.Pod:
		return ""
	}
	a, b := had.Pod, want.Pod
	same := equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		sameAnnotations(a.Annotations, b.Annotations)
	switch {
	case !same && b.DeletionTimestamp != nil:
		return pod.OpDelete
	case !same:
		return pod.OpUpdate
	case !equality.Semantic.DeepEqual(a.Status, b.Status):
		return pod.OpReconcile
	}
	return ""
}

// sameAnnotations compares annotations, but ignores the node's own.
func sameAnnotations(a, b map[string]string) bool {
	foreign := func(m map[string]string) int {
		n := len(m)
		for _, k := range []string{pod.AnnotationSource, pod.AnnotationSeen} {
			if _, ok := m[k]; ok {
				n--
			}
		}
		return n
	}
	if foreign(a) != foreign(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; k != pod.AnnotationSource && k != pod.AnnotationSeen && (!ok || v != w) {
			return false
		}
	}
	return true
}

// duplicate is a pod or object that is unused because holder has its name.
type duplicate[T any] struct{ loser, holder T }

type podDuplicate duplicate[*pod.Desired]

// podKey is the name that only one pod may have at a time. It is computed for each pod whenever
// a source sends anything.
type podKey struct{ namespace, name string }

func keyOf(d *pod.Desired) podKey { return podKey{d.Pod.Namespace, d.Pod.Name} }

// resolveNameConflicts picks one pod for each name.
func (s *desiredState) resolveNameConflicts() (map[pod.Source][]*pod.Desired, []podDuplicate) {
	var all []*pod.Desired
	for _, name := range s.order {
		all = append(all, s.latest[name]...)
	}
	chosen, losers := choosePods(all, s.holders)
	by := map[pod.Source][]*pod.Desired{}
	s.holders = make(map[podKey]*pod.Desired, len(chosen))
	for _, d := range chosen {
		by[d.Source] = append(by[d.Source], d)
		s.holders[keyOf(d)] = d
	}
	return by, losers
}

// Which of several candidates gets a name: the one with the highest rank.
const (
	_              = iota
	candidateRank  // nothing speaks for it
	sameOriginRank // it is from the origin of the holder: an edited manifest
	holderRank     // it holds the name
)

func choosePods(all []*pod.Desired, holders map[podKey]*pod.Desired) (chosen []*pod.Desired, losers []podDuplicate) {
	chosen, lost := chooseOnePerName(all, keyOf, func(d *pod.Desired) int {
		switch h := holders[keyOf(d)]; {
		case h == nil:
			return candidateRank
		case h.UID() == d.UID():
			return holderRank
		case h.Source == d.Source && h.Origin == d.Origin:
			return sameOriginRank
		}
		return candidateRank
	})
	for _, l := range lost {
		losers = append(losers, podDuplicate(l))
	}
	return chosen, losers
}

// chooseOnePerName splits the candidates into one for each name and the rest. The first candidate
// with the best rank for a name gets it.
func chooseOnePerName[T any, K comparable](all []T, name func(T) K, rank func(T) int) (chosen []T, losers []duplicate[T]) {
	type holder struct{ place, rank int }
	best := make(map[K]holder, len(all))
	for i, d := range all {
		key := name(d)
		if r := rank(d); r > best[key].rank {
			best[key] = holder{i, r}
		}
	}
	chosen = make([]T, 0, len(best))
	for i, d := range all {
		if of := best[name(d)]; of.place == i {
			chosen = append(chosen, d)
		} else {
			losers = append(losers, duplicate[T]{loser: d, holder: all[of.place]})
		}
	}
	return chosen, losers
}

// Duplicates returns a problem for each pod or object if an earlier one has its name. They are
// the problems that PodConfig would report if all of them appeared at once.
func Duplicates(pods []*pod.Desired, objects []*pod.Object) []pod.Problem {
	var out []pod.Problem
	_, losers := choosePods(pods, nil)
	for _, l := range losers {
		out = append(out, l.problem())
	}
	_, lost := chooseObjects(objects, nil)
	for _, l := range lost {
		out = append(out, l.problem())
	}
	return out
}

func (l podDuplicate) problem() pod.Problem {
	at := pod.Problem{Origin: l.holder.Origin, Line: l.holder.Line}.Location()
	return pod.Problem{
		Origin: l.loser.Origin, Line: l.loser.Line, Field: "metadata.name", Pod: l.loser.Name(), Since: l.loser.Seen,
		Message: fmt.Sprintf("the pod %s is defined twice; the one at %s has the name", l.loser.Name(), at),
		Hint:    "remove one of the two, or give it another name",
	}
}

func byPlace(a, b *pod.Desired) int {
	if c := compare(a.Origin, b.Origin); c != 0 {
		return c
	}
	if c := a.Line - b.Line; c != 0 {
		return c
	}
	return compare(a.Name(), b.Name())
}
