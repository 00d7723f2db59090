package podconfig

import (
	"fmt"
	"slices"

	"podd/internal/pod"
)

// Objects receives the objects of all sources that pods refer to: ConfigMaps, Secrets,
// volumes, claims.
type Objects interface {
	// Replace takes the whole set, one object for each key. It must not block, and may keep the
	// slice. One goroutine calls it whenever the set has changed: after the reader of Updates
	// has applied the pod removals of the same merge, and before the other changes of pods are
	// sent. An unchanged object is the same pointer again.
	Replace(all []*pod.Object)
}

// objectSet holds the objects that the sources have sent, and those that were delivered. It has
// the same owner as desiredState.
type objectSet struct {
	// latest holds the last snapshot of each source.
	latest map[pod.Source][]*pod.Object
	// delivered is the set that Objects has, in the order of the sources; not meaningful until
	// initialized is set.
	delivered   []*pod.Object
	initialized bool
	// losers are the objects that are unused because others have their names.
	losers []objectDuplicate
}

type objectDuplicate duplicate[*pod.Object]

// merge chooses one object for each key, and reports whether the choice has changed.
func (s *objectSet) merge(order []pod.Source) (changed bool) {
	var all []*pod.Object
	for _, name := range order {
		all = append(all, s.latest[name]...)
	}
	holders := make(map[pod.ObjectKey]*pod.Object, len(s.delivered))
	for _, o := range s.delivered {
		holders[o.Key()] = o
	}
	var chosen []*pod.Object
	chosen, s.losers = chooseObjects(all, holders)
	if len(s.latest) == 0 || s.initialized && slices.Equal(chosen, s.delivered) {
		return false // no source has sent anything, or nothing is new
	}
	s.delivered, s.initialized = chosen, true
	return true
}

func chooseObjects(all []*pod.Object, holders map[pod.ObjectKey]*pod.Object) (chosen []*pod.Object, losers []objectDuplicate) {
	chosen, lost := chooseOnePerName(all, (*pod.Object).Key, func(o *pod.Object) int {
		switch h := holders[o.Key()]; {
		case h == nil:
			return candidateRank
		case h == o:
			return holderRank
		case h.Source == o.Source && h.Origin == o.Origin:
			return sameOriginRank
		}
		return candidateRank
	})
	for _, l := range lost {
		losers = append(losers, objectDuplicate(l))
	}
	return chosen, losers
}

func (l objectDuplicate) problem() pod.Problem {
	at, key := pod.Problem{Origin: l.holder.Origin, Line: l.holder.Line}.Location(), l.loser.Key().String()
	return pod.Problem{
		Origin: l.loser.Origin, Line: l.loser.Line, Field: "metadata.name", Object: key, Since: l.loser.Seen,
		Message: fmt.Sprintf("the %s is defined twice; the one at %s has the name", key, at),
		Hint:    "remove one of the two, or give it another name",
	}
}
