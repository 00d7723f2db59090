package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"

	"podd/internal/bytesize"
	"podd/internal/pod"
	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

func (r *reader) document(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
			r.Documents--
			return
		}
		r.fail([]advice.Fault{advice.NoObject(n)}, Failed{})
		return
	}
	if f := advice.Needless(n); f != nil {
		r.warn(*f, Failed{})
		return
	}
	if f := advice.CheckHeader(n); f != nil {
		r.fail([]advice.Fault{*f}, r.unknown(n))
		return
	}
	switch kind := advice.HeaderOf(n).Kind.Value; {
	case kind == "Pod":
		r.pod(n, "")
	case slices.Contains(pod.ObjectKinds, kind):
		r.object(n, kind, "")
	default:
		r.list(n, kind)
	}
}

// list decodes each entry of a List, or of a list of one kind, as a document of
// its own.
func (r *reader) list(n *yaml.Node, kind string) {
	items := strictyaml.Lookup(n, "items")
	if faults := r.listFaults(n, kind, items); len(faults) > 0 {
		r.fail(faults, Failed{})
		return
	}
	if items == nil {
		return
	}
	for i, item := range items.Content {
		if r.beyond != nil {
			return
		}
		r.item(strictyaml.Resolve(item), kind, fmt.Sprintf("items[%d].", i))
	}
}

// listFaults are the faults of a list itself; items may be nil.
func (r *reader) listFaults(n *yaml.Node, kind string, items *yaml.Node) []advice.Fault {
	d := &decoding{validation: r.opt.Validation}
	for _, p := range strictyaml.Pairs(n, func(e *strictyaml.Error) { d.report(e) }) {
		known := []string{"apiVersion", "kind", "metadata", "items"}
		if to := d.place(true); to != nil && !slices.Contains(known, p.Name) {
			*to = append(*to, advice.Fault{Line: p.Key.Line, Field: p.Name, Message: fmt.Sprintf("unknown field %q", advice.Shorten(p.Name)),
				Hint: "a " + kind + " has apiVersion, kind, metadata and items"})
		}
	}
	for _, f := range d.warnings {
		r.warn(f, Failed{})
	}
	if items != nil && items.Kind != yaml.SequenceNode && items.ShortTag() != "!!null" {
		const hint = `begin each entry with "- "`
		d.faults = append(d.faults, advice.Fault{Line: items.Line, Field: "items", Message: "got " + advice.Describe(items) + ", want a list", Hint: hint,
			Plain: "got " + advice.Form(items) + ", want a list", PlainHint: hint})
	}
	return d.faults
}

// item decodes one entry of a list of that kind; prefix is its path.
func (r *reader) item(n *yaml.Node, list, prefix string) {
	if f := advice.Needless(n); f != nil && list == "List" {
		f.Field = prefix + f.Field
		r.warn(*f, Failed{})
		return
	}
	h, of := advice.HeaderOf(n), strings.TrimSuffix(list, "List")
	f, kind := advice.CheckHeader(n), of
	if of != "" && h.Kind == nil && h.APIVersion == nil && n.Kind == yaml.MappingNode {
		f = nil // the list says what its items are
	} else if h.Kind != nil {
		kind = h.Kind.Value
	}
	switch {
	case f != nil:
		f.Field = strings.TrimSuffix(prefix+f.Field, ".")
		r.fail([]advice.Fault{*f}, r.unknown(n))
	case strings.HasSuffix(kind, "List"), of != "" && kind != of:
		r.fail([]advice.Fault{{Line: n.Line, Field: prefix + "kind", Message: "a " + list + " cannot hold a " + kind,
			Hint: "write it as a document of its own, after a line ---"}}, Failed{})
	case kind == "Pod":
		r.pod(n, prefix)
	default:
		r.object(n, kind, prefix)
	}
}

// keyOf is an object's key, as far as a broken document shows it.
func keyOf(n *yaml.Node, kind string) pod.ObjectKey {
	key := pod.ObjectKey{Kind: kind, Namespace: advice.Scalar(strictyaml.Lookup(n, "metadata", "namespace")), Name: advice.Scalar(strictyaml.Lookup(n, "metadata", "name"))}
	switch {
	case !pod.Namespaced(kind):
		key.Namespace = ""
	case key.Namespace == "":
		key.Namespace = v1.NamespaceDefault
	}
	return key
}

// failedPod is a Pod's document that could not be used.
func (r *reader) failedPod(n *yaml.Node) Failed {
	key := keyOf(n, "")
	if key.Name == "" {
		return Failed{}
	}
	return Failed{Pod: key.Namespace + "/" + staticName(key.Name, r.opt.NodeName)}
}

// failedObject is an object's.
func failedObject(n *yaml.Node, kind string) Failed { return Failed{Object: keyOf(n, kind)} }

// unknown is a document whose header is wrong.
func (r *reader) unknown(n *yaml.Node) Failed {
	switch kind := advice.Scalar(advice.HeaderOf(n).Kind); {
	case slices.Contains(pod.ObjectKinds, kind):
		return failedObject(n, kind)
	case kind == "Pod":
		return r.failedPod(n)
	}
	f := r.failedPod(n)
	if f.Pod != "" {
		f.Object = keyOf(n, "")
	}
	return f
}

// pod decodes one Pod. prefix is the path of a list's item, else "".
func (r *reader) pod(n *yaml.Node, prefix string) {
	if r.described++; r.described > MaxPods {
		r.exceed(n, fmt.Sprintf("the manifest describes more than %d pods", MaxPods))
		return
	}
	d := &decoding{kind: "Pod", validation: r.opt.Validation}
	p := &v1.Pod{}
	d.decode(n, p)
	if !r.afford(d, n) {
		return
	}
	faults := d.faults
	dropped := ignored(&p.ObjectMeta)
	if len(faults) == 0 {
		p.TypeMeta.APIVersion, p.TypeMeta.Kind = "v1", "Pod"
		faults = admit(p, r.opt, d.Decoded)
	}
	if len(faults) > 0 {
		r.fail(within(prefix, faults), r.failedPod(n))
		return
	}
	name := Failed{Pod: p.Namespace + "/" + p.Name}
	for _, f := range within(prefix, append(d.warnings, advice.Doubts(p, dropped, d.Decoded)...)) {
		r.warn(f, name)
	}
	if r.opt.Needs {
		for _, n := range needs(p, func(path string) int { return d.Line(path) + r.base }) {
			n.Pod, n.Origin = name.Pod, r.opt.shown()
			n.Name.field, n.KeyAt.field = prefix+n.Name.field, prefix+n.KeyAt.field
			r.Needs = append(r.Needs, n)
		}
	}
	r.Pods = append(r.Pods, &pod.Desired{Pod: p, Source: r.opt.Source, Origin: r.opt.shown(),
		Line: n.Line + r.base, Seen: r.opt.Now})
}

// afford counts the memory of a pod or object, and says whether the manifest may take
// it.
func (r *reader) afford(d *decoding, n *yaml.Node) bool {
	if r.values += d.Memory; r.values > maxValues {
		r.exceed(n, "the pods and objects of the manifest take more than "+bytesize.Mebibytes(maxValues)+" of memory")
		return false
	}
	return true
}

// within prefixes the faults of a list's item with its path.
func within(prefix string, faults []advice.Fault) []advice.Fault {
	for i := range faults {
		faults[i].Field = strings.TrimSuffix(prefix+faults[i].Field, ".")
	}
	return faults
}
