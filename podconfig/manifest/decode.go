package manifest

import (
	"bytes"
	"cmp"
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
	// Origin is the file's path or the URL; the pods' UIDs depend on it.
	Origin string
	// Shown is what pods and problems carry for it, where it has something that
	// nobody may see; empty for Origin itself.
	Shown string
	// Now is when the manifest was noticed: Seen of the pods and Since of the
	// problems.
	Now time.Time
	// Validation says what becomes of unknown and duplicate fields; "" is Strict.
	Validation Validation
}

func (o Options) shown() string { return cmp.Or(o.Shown, o.Origin) }

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

// Decode reads a manifest: YAML or JSON, any number of documents, each a Pod, a
// PodList, a List, a ConfigMap or a Secret.
func Decode(data []byte, opt Options) Result {
	r := &reader{opt: opt}
	if message, hint := unreadable(data); message != "" {
		r.add(fault{line: badUTF8Line(data[:min(len(data), MaxBytes)]), message: message, hint: hint}, "")
		r.Failed = append(r.Failed, Failed{})
		return r.Result
	}
	documents := 0 // those of nothing, too
	for c := range split(data) {
		r.base, r.text, r.found = c.line-1, c.text, nil
		parse(c, func(n *yaml.Node, bad *fault) bool {
			r.Documents++
			if documents++; documents > maxDocuments {
				r.exceed(n, fmt.Sprintf("the manifest has more than %d documents", maxDocuments))
			} else if bad != nil {
				if bad.bound {
					r.found = []*leftover{}
				}
				r.fail([]fault{*bad}, "")
			} else {
				r.document(resolve(n))
			}
			return r.beyond == nil
		})
		if r.beyond != nil {
			return r.refusal()
		}
	}
	if r.Documents == 0 {
		message := "the file is empty"
		if len(bytes.TrimSpace(data)) > 0 {
			message = "the file contains only comments and blank lines, no manifest"
		}
		r.add(fault{message: message, hint: "write a Pod into it, or remove the file to stop its pods"}, "")
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
	// text is that chunk's, and found what other tools left in it, once something
	// was wrong with it.
	text  []byte
	found []*leftover
	// described counts the pods, good or not, and values the memory that they
	// take, in bytes.
	described, values int
	// problems and warnings count what was told.
	problems, warnings int
	// beyond is why the manifest is refused as a whole.
	beyond *fault
}

// exceed notes that the manifest is beyond a bound; n is where, or nil.
func (r *reader) exceed(n *yaml.Node, message string) {
	if r.beyond != nil {
		return
	}
	r.beyond = &fault{message: message, hint: "podd uses none of it; is this the right file? one machine has a few dozen Pods"}
	if n != nil {
		r.beyond.line = n.Line
	}
}

// refusal is the result of a manifest that is beyond a bound: like one that is too
// large, it says nothing, and what it had before stays.
func (r *reader) refusal() Result {
	r.Result, r.found, r.problems = Result{Documents: r.Documents}, []*leftover{}, 0
	r.fail([]fault{*r.beyond}, "")
	return r.Result
}

func (r *reader) add(f fault, podName string) { r.tell(f, podName, false) }

// warn is add for what keeps no pod from running.
func (r *reader) warn(f fault, podName string) { r.tell(f, podName, true) }

// tell adds a problem, or the word that there are more. Warnings are counted
// apart, so that they never hide a problem.
func (r *reader) tell(f fault, podName string, warning bool) {
	told, what := &r.problems, "problems"
	if warning {
		told, what = &r.warnings, "warnings"
	}
	switch *told++; {
	case *told > maxProblems+1:
		return
	case *told > maxProblems:
		f = fault{line: f.line, message: "there are more " + what + " after this one", hint: "fix the ones above first"}
	}
	if f.second > 0 {
		f.message += fmt.Sprintf(" (first on line %d)", f.second+r.base)
	}
	p := pod.Problem{Origin: r.opt.shown(), Document: r.Documents, Field: f.field, Pod: shorten(podName),
		Message: f.message, Hint: f.hint, Warning: warning, Since: r.opt.Now}
	if f.line > 0 {
		p.Line = f.line + r.base
	}
	r.Problems = append(r.Problems, p)
}

// fail notes why a pod or document is unusable.
func (r *reader) fail(faults []fault, podName string) {
	if r.found == nil && len(r.text) <= maxDocument {
		r.found = leftovers(r.text)
	}
	faults = retell(r.found, faults)
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
	if f := needless(n); f != nil {
		r.warn(*f, "")
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
	report := func(f fault) {
		switch {
		case len(faults) > maxProblems, f.lenient && r.opt.Validation == Ignore:
		case f.lenient && r.opt.Validation == Warn:
			r.warn(f, "")
		default:
			faults = append(faults, f)
		}
	}
	for _, p := range pairs(n, report) {
		if known := []string{"apiVersion", "kind", "metadata", "items"}; !slices.Contains(known, p.name) {
			report(fault{line: p.key.Line, field: p.name, message: fmt.Sprintf("unknown field %q", shorten(p.name)),
				hint: "a " + kind + " has apiVersion, kind, metadata and items", lenient: true})
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
		if r.beyond != nil {
			return
		}
		item, prefix := resolve(item), fmt.Sprintf("items[%d].", i)
		if f := needless(item); f != nil && kind == "List" {
			f.field = prefix + f.field
			r.warn(*f, "")
			continue
		}
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
	if r.described++; r.described > MaxPods {
		r.exceed(n, fmt.Sprintf("the manifest describes more than %d pods", MaxPods))
		return
	}
	d := &filler{lines: map[string]int{"": n.Line}, validation: r.opt.Validation}
	p := &v1.Pod{}
	d.fill(reflect.ValueOf(p).Elem(), n, "")
	if r.values += d.values; r.values > maxValues {
		r.exceed(n, "the pods of the manifest take more than "+mebibytes(maxValues)+" of memory")
		return
	}
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
	for _, f := range d.warnings {
		f.field = prefix + f.field
		r.warn(f, p.Namespace+"/"+p.Name)
	}
	for _, w := range doubts(p) {
		r.warn(fault{line: lineOf(d.lines, w.path), field: prefix + w.path, message: w.message, hint: w.hint}, p.Namespace+"/"+p.Name)
	}
	r.Pods = append(r.Pods, &pod.Desired{Pod: p, Source: r.opt.Source, Origin: r.opt.shown(),
		Line: n.Line + r.base, Seen: r.opt.Now})
}
