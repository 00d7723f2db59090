package manifest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	"podd/internal/pod"
)

// Options say where a manifest comes from and for which node it is.
type Options struct {
	// NodeName becomes part of each pod's name and UID; required.
	NodeName string
	// Source is the pods' source (file, http).
	Source pod.Source
	// Origin is the file's path or the URL, as the pods' UIDs and all problems
	// will carry it.
	Origin string
	// Now is when the manifest was noticed: Seen of the pods and Since of the
	// problems.
	Now time.Time
}

// Result is what a manifest says.
type Result struct {
	// Pods are complete: defaulted, valid, named, with their UIDs, in the order
	// of the manifest.
	Pods []*pod.Desired
	// Objects are the ConfigMaps and Secrets beside them.
	Objects []Object
	// Problems, in the order of the manifest; those of good pods are warnings.
	Problems []pod.Problem
	// Failed lists the pods that the manifest wants to describe and does not,
	// so that their last good version can be kept.
	Failed []Failed
	// Documents counts all documents with content.
	Documents int
}

// Failed is a pod, or a whole document, that could not be used.
type Failed struct {
	// Pod is namespace/name with the node's suffix, or "" when the text does
	// not let it be known.
	Pod string
}

// Object is a ConfigMap or Secret document. Its content is not decoded yet: the
// volumes that need it come later.
type Object struct {
	Kind, Namespace, Name string
	Line                  int
}

// maxProblems bounds what one manifest has to say.
const maxProblems = 20

// Decode reads a manifest: YAML or JSON, any number of documents, each a Pod, a
// PodList, a List, a ConfigMap or a Secret.
func Decode(data []byte, opt Options) Result {
	r := &reader{opt: opt}
	if message, hint := unreadable(data); message != "" {
		r.add(fault{line: badUTF8Line(data[:min(len(data), MaxBytes)]), message: message, hint: hint}, "")
		r.Failed = append(r.Failed, Failed{})
		return r.Result
	}
	for _, c := range split(data) {
		r.base = c.line - 1
		nodes, bad := parse(c)
		if bad != nil {
			r.Documents++
			r.fail([]fault{*bad}, "")
			continue
		}
		for _, n := range nodes {
			r.Documents++
			if bad := explosive(n); bad != nil {
				r.fail([]fault{*bad}, "")
				continue
			}
			r.document(resolve(n))
		}
	}
	if r.Documents == 0 {
		message := "the file is empty"
		if len(bytes.TrimSpace(data)) > 0 {
			message = "the file holds only comments and blank lines, no manifest"
		}
		r.add(fault{message: message, hint: "write a Pod into it, or remove the file to stop the pods it had"}, "")
		r.Failed = append(r.Failed, Failed{})
	}
	return r.Result
}

// reader collects the Result of one manifest.
type reader struct {
	Result
	opt Options
	// base is added to the lines of the chunk at hand.
	base int
}

func (r *reader) add(f fault, podName string) {
	switch {
	case len(r.Problems) > maxProblems:
		return
	case len(r.Problems) == maxProblems:
		f = fault{line: f.line, message: "there are more problems after this one", hint: "mend the ones above first"}
	}
	if f.second > 0 {
		f.message += fmt.Sprintf(" (first on line %d)", f.second+r.base)
	}
	p := pod.Problem{Origin: r.opt.Origin, Document: r.Documents, Field: f.field, Pod: shorten(podName),
		Message: f.message, Hint: f.hint, Since: r.opt.Now}
	if f.line > 0 {
		p.Line = f.line + r.base
	}
	r.Problems = append(r.Problems, p)
}

// fail notes why a pod or document is unusable.
func (r *reader) fail(faults []fault, podName string) {
	slices.SortStableFunc(faults, func(a, b fault) int { return a.line - b.line })
	for _, f := range faults {
		r.add(f, podName)
	}
	r.Failed = append(r.Failed, Failed{Pod: podName})
}

// header is what says of which kind a document is.
type header struct{ apiVersion, kind *yaml.Node }

func headerOf(n *yaml.Node) header {
	return header{apiVersion: lookup(n, "apiVersion"), kind: lookup(n, "kind")}
}

// lookup follows field names from a mapping; nil where there is nothing.
func lookup(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		n = resolve(n)
		if n.Kind != yaml.MappingNode {
			return nil
		}
		all := pairs(n, func(fault) {})
		i := slices.IndexFunc(all, func(p pair) bool { return p.name == name })
		if i < 0 {
			return nil
		}
		n = all[i].value
	}
	return resolve(n)
}

func (r *reader) document(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
			r.Documents--
			return
		}
		r.fail([]fault{{line: n.Line, message: "the document is " + describe(n) + ", not a Pod",
			hint: "a manifest begins with apiVersion: v1 and kind: Pod"}}, "")
		return
	}
	if f := checkHeader(n); f != nil {
		r.fail([]fault{*f}, r.nameOf(n))
		return
	}
	switch kind := headerOf(n).kind.Value; kind {
	case "Pod":
		r.pod(n, "")
	case "PodList", "List":
		r.items(n, kind)
	default:
		r.object(n, kind)
	}
}

// items decodes each entry of a PodList or List as a document of its own.
func (r *reader) items(n *yaml.Node, kind string) {
	items := lookup(n, "items")
	var faults []fault
	for _, p := range pairs(n, func(f fault) { faults = append(faults, f) }) {
		if known := []string{"apiVersion", "kind", "metadata", "items"}; !slices.Contains(known, p.name) {
			faults = append(faults, fault{line: p.key.Line, field: p.name, message: fmt.Sprintf("unknown field %q", shorten(p.name)),
				hint: "a " + kind + " has apiVersion, kind, metadata and items"})
		}
	}
	if items != nil && items.Kind != yaml.SequenceNode && items.ShortTag() != "!!null" {
		faults = append(faults, fault{line: items.Line, field: "items", message: "got " + describe(items) + ", want a list", hint: `begin each Pod with "- "`})
	}
	if len(faults) > 0 {
		r.fail(faults, "")
		return
	}
	if items == nil {
		return
	}
	for i, item := range items.Content {
		item, prefix := resolve(item), fmt.Sprintf("items[%d].", i)
		h := headerOf(item)
		f := checkHeader(item)
		if kind == "PodList" && h.kind == nil && h.apiVersion == nil && item.Kind == yaml.MappingNode {
			f = nil // the list says what its items are
		}
		switch {
		case f != nil:
			f.field = strings.TrimSuffix(prefix+f.field, ".")
			r.fail([]fault{*f}, r.nameOf(item))
		case h.kind == nil || h.kind.Value == "Pod":
			r.pod(item, prefix)
		case h.kind.Value == "PodList" || h.kind.Value == "List" || kind == "PodList":
			r.fail([]fault{{line: item.Line, field: prefix + "kind", message: "a " + kind + " within a list cannot hold a " + h.kind.Value,
				hint: "write it as a document of its own, after a line ---"}}, "")
		default:
			r.object(item, h.kind.Value)
		}
	}
}

// object keeps the place of what podd will read later.
func (r *reader) object(n *yaml.Node, kind string) {
	o := Object{Kind: kind, Namespace: scalar(lookup(n, "metadata", "namespace")), Name: scalar(lookup(n, "metadata", "name")), Line: n.Line + r.base}
	r.Objects = append(r.Objects, o)
	r.add(fault{line: n.Line, message: fmt.Sprintf("podd does not use %ss yet: they come later, together with the volumes that show them to pods", kind),
		hint: "the pods of this file are not affected; leave the document or remove it"}, "")
}

func scalar(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

// nameOf is the pod's name as far as a broken document lets it be known.
func (r *reader) nameOf(n *yaml.Node) string {
	name := scalar(lookup(n, "metadata", "name"))
	if name == "" {
		return ""
	}
	namespace := scalar(lookup(n, "metadata", "namespace"))
	if namespace == "" {
		namespace = v1.NamespaceDefault
	}
	return namespace + "/" + staticName(name, r.opt.NodeName)
}

// pod decodes one Pod. prefix is the path of a list's item, else "".
func (r *reader) pod(n *yaml.Node, prefix string) {
	d := &filler{lines: map[string]int{"": n.Line}}
	p := &v1.Pod{}
	d.fill(reflect.ValueOf(p).Elem(), n, "")
	faults := d.faults
	if len(faults) == 0 {
		p.TypeMeta.APIVersion, p.TypeMeta.Kind = "v1", "Pod"
		faults = admit(p, r.opt, d.lines, n)
	}
	if len(faults) > 0 {
		for i := range faults {
			faults[i].field = strings.TrimSuffix(prefix+faults[i].field, ".")
		}
		r.fail(faults, r.nameOf(n))
		return
	}
	for _, w := range doubts(p) {
		before := len(r.Problems)
		r.add(fault{line: lineOf(d.lines, w.path), field: prefix + w.path, message: w.message, hint: w.hint}, p.Namespace+"/"+p.Name)
		for i := before; i < len(r.Problems); i++ {
			r.Problems[i].Warning = true
		}
	}
	r.Pods = append(r.Pods, &pod.Desired{Pod: p, Source: r.opt.Source, Origin: r.opt.Origin,
		Line: n.Line + r.base, Seen: r.opt.Now})
}
