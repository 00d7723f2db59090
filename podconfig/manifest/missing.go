package manifest

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Need is an object, or a key of it, that a pod does not do without, and where its
// manifest says so.
type Need struct {
	Object pod.ObjectKey
	Key    string // "" for the object alone
	// ImagePull: the pod starts without the object, but its images are pulled without it.
	ImagePull bool
	// Pod is namespace/name.
	Pod, Origin string
	// Name and KeyField are the fields that name the object and the key.
	Name, KeyField fieldPosition
}

// fieldPosition is a field and its line.
type fieldPosition struct {
	field string
	line  int
}

// needs are those of a pod, each once, in the order of its references. It can do without
// a volume that none of its containers uses, without a CSIDriver, and without what is
// made for it. line returns that of a path.
func needs(p *v1.Pod, line func(path string) int) []Need {
	type what struct {
		object pod.ObjectKey
		key    string
		pull   bool
	}
	var all []Need
	told, used := map[what]bool{}, pod.UsedVolumes(p)
	for r := range pod.References(p) {
		n := what{r.Object, r.Key, r.ImagePull}
		unused := r.Volume != "" && !used[r.Volume]
		if r.Optional || r.Generated || unused || r.Object.Kind == pod.KindCSIDriver || told[n] {
			continue // it may be named ten thousand times
		}
		told[n] = true
		need := Need{Object: r.Object, Key: r.Key, ImagePull: r.ImagePull, Name: fieldPosition{r.Path, line(r.Path)}}
		if r.KeyPath != "" {
			need.KeyField = fieldPosition{r.KeyPath, line(r.KeyPath)}
		}
		all = append(all, need)
	}
	return all
}

// Missing returns a warning for each need that content does not satisfy: its pod would
// wait for it. One of problems may say why an object does not exist. Unless content is
// whole, the objects that it does not have may be elsewhere: these are returned as
// elsewhere, which are no problems.
func Missing(c Content, all []Need, problems []pod.Problem, whole bool, now time.Time) (missing, elsewhere []pod.Problem) {
	const most = 100
	f := newObjectIndex(c.Objects, problems)
	told := map[absent]bool{}
	for _, n := range all {
		if _, there := f.keys[n.Object]; !there {
			// One object that is not there is one cause, however many fields name it.
			if one := (absent{n.Origin, n.Object}); told[one] {
				continue
			} else {
				told[one] = true
			}
		}
		p := pod.Problem{Origin: n.Origin, Pod: n.Pod, Since: now}
		to := &missing
		keys, there := f.keys[n.Object]
		_, hasKey := keys[n.Key]
		switch {
		case there && (n.Key == "" || hasKey):
			continue
		case there:
			p.Line, p.Field, p.Warning = n.KeyField.line, n.KeyField.field, true
			p.Message, p.Hint = f.missingKey(n)
		case whole:
			p.Line, p.Field, p.Warning = n.Name.line, n.Name.field, true
			p.Message, p.Hint, p.Example = f.missingObject(n)
		default:
			to = &elsewhere
			p.Line, p.Field = n.Name.line, n.Name.field
			p.Message, p.Hint, p.Example = f.neededObject(n)
		}
		if len(*to) > most {
			continue
		}
		if len(*to) == most {
			p.Message, p.Hint, p.Example = "there are more of this kind after this one", "fix the ones above first", ""
		}
		*to = append(*to, p)
	}
	return missing, elsewhere
}

// absent is an object that a file's pods name and that is not there.
type absent struct {
	origin string
	object pod.ObjectKey
}
