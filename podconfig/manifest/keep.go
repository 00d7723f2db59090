package manifest

import "podd/internal/pod"

// Keep returns the last good versions, of those that a manifest had before
// (old), that stay beside what it says now (next) when parts of it failed: the
// pods that the failures name, when each names one that was there; otherwise,
// since nobody knows what the broken part meant, all that next does not name.
func Keep(next, old []*pod.Desired, failed []Failed) []*pod.Desired {
	if len(failed) == 0 {
		return nil
	}
	named, all := map[string]bool{}, unnamed(old, failed)
	for _, f := range failed {
		named[f.Pod] = true
	}
	good := map[string]bool{}
	for _, p := range next {
		good[p.Name()] = true
	}
	var kept []*pod.Desired
	for _, o := range old {
		if name := o.Name(); !good[name] && (all || named[name]) {
			kept = append(kept, o)
		}
	}
	return kept
}

// MarkKept sets KeptRunning of the problems of which kept (see Keep) are the
// consequence.
func MarkKept(problems []pod.Problem, kept []*pod.Desired, failed []Failed, old []*pod.Desired) {
	all := unnamed(old, failed)
	names := map[string]bool{}
	for _, k := range kept {
		names[k.Name()] = true
	}
	for i := range problems {
		p := &problems[i]
		if p.Warning {
			continue // of a pod that is good
		}
		p.KeptRunning = names[p.Pod] || len(kept) > 0 && (p.Pod == "" || all)
	}
}

// unnamed says whether some failure names no pod of old.
func unnamed(old []*pod.Desired, failed []Failed) bool {
	had := map[string]bool{}
	for _, o := range old {
		had[o.Name()] = true
	}
	for _, f := range failed {
		if !had[f.Pod] {
			return true
		}
	}
	return false
}
