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

func (r *reader) decodeDocument(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
			r.Documents--
			return
		}
		r.fail([]advice.Fault{advice.NoObject(n)}, Failed{})
		return
	}
	if f := advice.IgnoredKind(n); f != nil {
		r.warn(*f, Failed{})
		return
	}
	if f := advice.CheckHeader(n); f != nil {
		r.fail([]advice.Fault{*f}, r.failedDocument(n))
		return
	}
	switch kind := advice.HeaderOf(n).Kind.Value; {
	case kind == "Pod":
		r.decodePod(n, "")
	case slices.Contains(pod.ObjectKinds, kind):
		r.decodeObject(n, kind, "")
	default:
		r.decodeList(n, kind)
	}
}

// decodeList decodes each entry of a List, or of a list of one kind, as a document of
// its own.
func (r *reader) decodeList(n *yaml.Node, kind string) {
	items := strictyaml.Lookup(n, "items")
	if faults := r.listFaults(n, kind, items); len(faults) > 0 {
		r.fail(faults, Failed{})
		return
	}
	if items == nil {
		return
	}
	for i, item := range items.Content {
		if r.exceeded != nil {
			return
		}
		r.decodeItem(strictyaml.Resolve(item), kind, fmt.Sprintf("items[%d].", i))
	}
}

// listFaults are the faults of a list itself; items may be nil.
func (r *reader) listFaults(n *yaml.Node, kind string, items *yaml.Node) []advice.Fault {
	d := &decoding{validation: r.opt.Validation}
	for _, p := range strictyaml.Pairs(n, func(e *strictyaml.Error) { d.report(e) }) {
		known := []string{"apiVersion", "kind", "metadata", "items"}
		if to := d.faultList(true); to != nil && !slices.Contains(known, p.Name) {
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
			MaskedMessage: "got " + advice.DescribeType(items) + ", want a list", MaskedHint: hint})
	}
	return d.faults
}

// decodeItem decodes one entry of a list of that kind; prefix is its path.
func (r *reader) decodeItem(n *yaml.Node, list, prefix string) {
	if f := advice.IgnoredKind(n); f != nil && list == "List" {
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
		r.fail([]advice.Fault{*f}, r.failedDocument(n))
	case strings.HasSuffix(kind, "List"), of != "" && kind != of:
		r.fail([]advice.Fault{{Line: n.Line, Field: prefix + "kind", Message: "a " + list + " cannot hold a " + kind,
			Hint: "write it as a document of its own, after a line ---"}}, Failed{})
	case kind == "Pod":
		r.decodePod(n, prefix)
	default:
		r.decodeObject(n, kind, prefix)
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

// failedDocument returns what a document with a wrong header was meant to be.
func (r *reader) failedDocument(n *yaml.Node) Failed {
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

// decodePod decodes one Pod. prefix is the path of a list's item, else "".
func (r *reader) decodePod(n *yaml.Node, prefix string) {
	if r.podCount++; r.podCount > MaxPods {
		r.setExceeded(n, fmt.Sprintf("the manifest describes more than %d pods", MaxPods))
		return
	}
	d := &decoding{kind: "Pod", validation: r.opt.Validation}
	p := &v1.Pod{}
	d.decode(n, p)
	if !r.chargeMemory(d, n) {
		return
	}
	faults := d.faults
	dropped := droppedFields(&p.ObjectMeta)
	if len(faults) == 0 {
		p.TypeMeta.APIVersion, p.TypeMeta.Kind = "v1", "Pod"
		faults = admit(p, r.opt, d.Decoded)
	}
	if len(faults) > 0 {
		r.fail(prefixFields(prefix, faults), r.failedPod(n))
		return
	}
	name := Failed{Pod: p.Namespace + "/" + p.Name}
	for _, f := range prefixFields(prefix, append(d.warnings, advice.Warnings(p, dropped, r.opt.Mirrored, d.Decoded)...)) {
		r.warn(f, name)
	}
	if r.opt.Needs {
		for _, n := range needs(p, func(path string) int { return d.Line(path) + r.lineOffset }) {
			n.Pod, n.Origin = name.Pod, r.opt.displayOrigin()
			n.Name.field, n.KeyField.field = prefix+n.Name.field, prefix+n.KeyField.field
			r.Needs = append(r.Needs, n)
		}
	}
	r.Pods = append(r.Pods, &pod.Desired{Pod: p, Source: r.opt.Source, Origin: r.opt.displayOrigin(),
		Line: n.Line + r.lineOffset, Seen: r.opt.Now})
}

// chargeMemory counts the memory of a pod or object, and says whether the manifest may take
// it.
func (r *reader) chargeMemory(d *decoding, n *yaml.Node) bool {
	if r.memory += d.Memory; r.memory > maxValues {
		r.setExceeded(n, "the pods and objects of the manifest take more than "+bytesize.Mebibytes(maxValues)+" of memory")
		return false
	}
	return true
}

// prefixFields prefixes the faults of a list's item with its path.
func prefixFields(prefix string, faults []advice.Fault) []advice.Fault {
	for i := range faults {
		faults[i].Field = strings.TrimSuffix(prefix+faults[i].Field, ".")
	}
	return faults
}
