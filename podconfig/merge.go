package podconfig

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"podd/internal/pod"
)

// set is the desired world: what each source said last, and which of that the
// agent was told. It is pure: no locks, no clock.
type set struct {
	// order of the sources decides who gets a name that nobody has.
	order []pod.Source
	// said is each source's last snapshot; a source without entry is silent.
	said map[pod.Source][]*pod.Desired
	// told is what the agent was told, by source and UID.
	told map[pod.Source]map[pod.UID]*pod.Desired
	// holders says who has each name among what was told.
	holders map[string]*pod.Desired
}

func newSet(order []pod.Source) *set {
	return &set{order: order, said: map[pod.Source][]*pod.Desired{},
		told: map[pod.Source]map[pod.UID]*pod.Desired{}, holders: map[string]*pod.Desired{}}
}

// merge takes snapshots of some sources and returns the changes, in the order
// in which they must be told, and the pods that do not run because another has
// their name.
func (s *set) merge(snaps map[pod.Source]Snapshot) (updates []pod.Update, losers []duplicate) {
	first := map[pod.Source]bool{}
	for name, snap := range snaps {
		if snap.Incomplete {
			continue
		}
		_, ready := s.said[name]
		first[name] = !ready
		s.said[name] = snap.Pods
	}
	chosen, losers := s.choose()
	var removes, rest []pod.Update
	for _, name := range s.order {
		want, had := chosen[name], s.told[name]
		s.told[name] = make(map[pod.UID]*pod.Desired, len(want))
		by := map[pod.Op][]*pod.Desired{}
		for _, d := range want {
			s.told[name][d.UID()] = d
			if op := change(had[d.UID()], d); op != "" {
				by[op] = append(by[op], d)
			}
		}
		for uid, d := range had {
			if _, ok := s.told[name][uid]; !ok {
				by[pod.OpRemove] = append(by[pod.OpRemove], d)
			}
		}
		if gone := by[pod.OpRemove]; len(gone) > 0 {
			slices.SortFunc(gone, byPlace)
			removes = append(removes, pod.Update{Op: pod.OpRemove, Source: name, Pods: gone})
		}
		for _, op := range []pod.Op{pod.OpAdd, pod.OpUpdate, pod.OpDelete, pod.OpReconcile} {
			if len(by[op]) > 0 || op == pod.OpAdd && first[name] {
				rest = append(rest, pod.Update{Op: op, Source: name, Pods: by[op]})
			}
		}
	}
	return append(removes, rest...), losers
}

// change is what tells had from want, of one UID.
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

// sameAnnotations leaves aside those that the node writes itself.
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

// duplicate is a pod that does not run since holder has its name.
type duplicate struct{ loser, holder *pod.Desired }

// choose picks one pod for each name.
func (s *set) choose() (map[pod.Source][]*pod.Desired, []duplicate) {
	var all []*pod.Desired
	for _, name := range s.order {
		all = append(all, s.said[name]...)
	}
	chosen, losers := chooseOne(all, s.holders)
	by := map[pod.Source][]*pod.Desired{}
	s.holders = make(map[string]*pod.Desired, len(chosen))
	for _, d := range chosen {
		by[d.Source] = append(by[d.Source], d)
		s.holders[d.Name()] = d
	}
	return by, losers
}

// chooseOne splits candidates into one for each name and the rest. A name goes
// to the pod that holds it, else to one of its holder's place (an edited
// manifest), else to the first.
func chooseOne(all []*pod.Desired, holders map[string]*pod.Desired) (chosen []*pod.Desired, losers []duplicate) {
	const none, first, place, itself = 0, 1, 2, 3
	claim := func(d *pod.Desired) int {
		switch h := holders[d.Name()]; {
		case h == nil:
			return first
		case h.UID() == d.UID():
			return itself
		case h.Source == d.Source && h.Origin == d.Origin:
			return place
		}
		return first
	}
	best := make(map[string]*pod.Desired, len(all))
	rank := make(map[string]int, len(all))
	for _, d := range all {
		if c := claim(d); c > rank[d.Name()] {
			best[d.Name()], rank[d.Name()] = d, c
		}
	}
	for _, d := range all {
		if best[d.Name()] == d {
			chosen = append(chosen, d)
		} else {
			losers = append(losers, duplicate{loser: d, holder: best[d.Name()]})
		}
	}
	return chosen, losers
}

// Duplicates returns a problem for each pod whose name an earlier one has: what
// PodConfig would say of these pods if they all appeared at once.
func Duplicates(pods []*pod.Desired) []pod.Problem {
	_, losers := chooseOne(pods, nil)
	out := make([]pod.Problem, len(losers))
	for i, l := range losers {
		out[i] = l.problem()
	}
	return out
}

func (l duplicate) problem() pod.Problem {
	at := pod.Problem{Origin: l.holder.Origin, Line: l.holder.Line}.Where()
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
