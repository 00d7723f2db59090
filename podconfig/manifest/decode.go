package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"podd/internal/features"
	"podd/internal/pod"
	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// Options describe where a manifest comes from and for which node it is.
type Options struct {
	// NodeName becomes part of each pod's name and UID; required.
	NodeName string
	// Source is the pods' source (file, http).
	Source pod.Source
	// Origin is the file's path or the URL; the pods' UIDs depend on it.
	Origin string
	// DisplayOrigin is what pods and problems show instead, if Origin contains something
	// confidential; empty for Origin itself.
	DisplayOrigin string
	// Now is when the manifest was noticed: Seen of the pods and Since of the
	// problems.
	Now time.Time
	// Validation determines how unknown and duplicate fields are handled; "" is
	// Strict.
	Validation Validation
	// Features are the feature gates. They decide which alpha fields podd honours.
	Features features.Set
	// Needs asks for Result.Needs.
	Needs bool
	// Mirrored says that podd creates a mirror pod of each pod in an apiserver. It adds
	// warnings.
	Mirrored bool
}

func (o Options) displayOrigin() string { return cmp.Or(o.DisplayOrigin, o.Origin) }

// Result is the outcome of decoding a manifest.
type Result struct {
	// Content is complete: defaulted, valid, named, the pods with their UIDs, in
	// the order of the manifest.
	Content
	// Problems, in the order of the manifest; those of good pods are warnings.
	Problems []pod.Problem
	// Failed lists the pods and objects that the manifest describes but that cannot
	// be used, so that their last good version can be kept.
	Failed []Failed
	// Needs are what the pods refer to, if Options.Needs asks for them; see Missing.
	Needs []Need
	// Documents counts all documents with content.
	Documents int
}

// Failed is a pod, an object, or a whole document, that could not be used. If the
// text does not show its kind, both are set; if it does not even show a name, none.
type Failed struct {
	// Pod is namespace/name with the node's suffix.
	Pod string
	// Object has no Kind if that is not known.
	Object pod.ObjectKey
}

// Decode decodes a manifest: YAML or JSON, any number of documents, each a Pod, one
// of the objects that pods refer to (pod.ObjectKinds), or a list of them. No message
// about a Secret, or about a text that may be one, shows a value.
func Decode(data []byte, opt Options) Result { return decode(data, opt).Result }

// decode is Decode with the edits.
func decode(data []byte, opt Options) *reader {
	r := &reader{opt: opt, maybeSecret: sync.OnceValue(func() bool { return maybeSecret(data) })}
	if message, hint := unreadable(data); message != "" {
		r.add(advice.Fault{Line: badUTF8Line(data[:min(len(data), MaxBytes)]), Message: message, Hint: hint}, Failed{})
		r.Failed = append(r.Failed, Failed{})
		return r
	}
	documents := 0 // those of nothing, too
	for c := range strictyaml.Split(data) {
		r.lineOffset, r.text, r.leftovers = c.Line-1, c.Text, nil
		parse(c, func(n *yaml.Node, bad *advice.Fault) bool {
			r.Documents++
			if documents++; documents > maxDocuments {
				r.setExceeded(n, fmt.Sprintf("the manifest has more than %d documents", maxDocuments))
			} else if bad != nil {
				if bad.ExceedsBounds {
					r.leftovers = []*advice.Leftover{}
				}
				r.fail([]advice.Fault{*bad}, Failed{})
			} else {
				r.decodeDocument(strictyaml.Resolve(n))
			}
			return r.exceeded == nil
		})
		if r.exceeded != nil {
			r.rejectManifest()
			return r
		}
	}
	if r.Documents == 0 {
		message := "the file is empty"
		if len(bytes.TrimSpace(data)) > 0 {
			message = "the file contains only comments and blank lines, no manifest"
		}
		r.add(advice.Fault{Message: message, Hint: "write a Pod into it, or remove the file to stop its pods"}, Failed{})
		r.Failed = append(r.Failed, Failed{})
	}
	return r
}

// reader collects the Result of one manifest.
type reader struct {
	Result
	opt Options
	// maybeSecret says whether the part of the text that cannot be parsed may be a
	// Secret.
	maybeSecret func() bool
	// lineOffset is added to the lines of the current chunk.
	lineOffset int
	// text is that chunk's, and leftovers what other tools left in it, searched once
	// something is wrong with it.
	text      []byte
	leftovers []*advice.Leftover
	// podCount counts the pods and objectCount the objects, valid or not; memory is
	// what they take, in bytes.
	podCount, objectCount, memory int
	// problemCount and warningCount count what was reported.
	problemCount, warningCount int
	// edits are those that the hints of Problems ask for, nil where one asks for none; their
	// lines are those of the manifest.
	edits []*advice.Edit
	// exceeded is the fault for which the manifest is rejected as a whole; nil for none.
	exceeded *advice.Fault
}

// setExceeded records the first bound that the manifest exceeds; n is where, or nil.
func (r *reader) setExceeded(n *yaml.Node, message string) {
	if r.exceeded != nil {
		return
	}
	r.exceeded = &advice.Fault{Message: message, Hint: "podd uses none of it; is this the right file? one machine has a few dozen Pods"}
	if n != nil {
		r.exceeded.Line = n.Line
	}
}

// rejectManifest empties the result, as for a manifest that is too large: the content that
// the source had before stays.
func (r *reader) rejectManifest() {
	r.Result, r.leftovers, r.problemCount, r.edits = Result{Documents: r.Documents}, []*advice.Leftover{}, 0, nil
	r.fail([]advice.Fault{*r.exceeded}, Failed{})
}

func (r *reader) add(f advice.Fault, of Failed) { r.report(f, of, false) }

// warn is add for what does not keep a pod from running.
func (r *reader) warn(f advice.Fault, of Failed) { r.report(f, of, true) }

// report adds a problem, or one that says that there are more. Warnings are counted
// separately, so that they never hide a problem.
func (r *reader) report(f advice.Fault, of Failed, warning bool) {
	count, what := &r.problemCount, "problems"
	if warning {
		count, what = &r.warningCount, "warnings"
	}
	switch *count++; {
	case *count > maxProblems+1:
		return
	case *count > maxProblems:
		f = advice.Fault{Line: f.Line, Message: "there are more " + what + " after this one", Hint: "fix the ones above first"}
	}
	if f.OtherLine > 0 {
		f.Message += fmt.Sprintf(" (first on line %d)", f.OtherLine+r.lineOffset)
	}
	p := pod.Problem{Origin: r.opt.displayOrigin(), Document: r.Documents, Field: advice.Cut(f.Field, maxField), Pod: advice.Shorten(of.Pod),
		Message: f.Message, Hint: f.Hint, Warning: warning, Since: r.opt.Now}
	if f.Line > 0 {
		p.Line = f.Line + r.lineOffset
	}
	if of.Object.Kind != "" && of.Object.Name != "" {
		p.Object = advice.Shorten(of.Object.String())
	}
	r.Problems, r.edits = append(r.Problems, p), append(r.edits, f.Edit.Shifted(r.lineOffset))
}

// fail records why a pod, an object or a document is unusable.
func (r *reader) fail(faults []advice.Fault, of Failed) {
	if r.leftovers == nil && len(r.text) <= maxDocument {
		r.leftovers = advice.Leftovers(r.text)
	}
	faults = advice.ReplaceCaused(r.leftovers, faults)
	slices.SortStableFunc(faults, func(a, b advice.Fault) int { return a.Line - b.Line })
	for _, f := range faults {
		if f.MaskedMessage != "" && r.maybeSecret() {
			f.Message, f.Hint, f.Edit = f.MaskedMessage, f.MaskedHint, nil
		}
		r.add(f, of)
	}
	r.Failed = append(r.Failed, of)
}

// Patterns for a kind, and for signs of a Secret, in a text that may be broken.
var (
	someKind = regexp.MustCompile(`(?i)kind["']?[ \t]*:`)
	secrets  = regexp.MustCompile(`(?i)kind["']?[ \t]*:[ \t\r\n]*["']?sec|stringData`)
)

// maybeSecret says whether a text may contain a Secret: also one without any kind,
// which may be the rest of one.
func maybeSecret(text []byte) bool { return secrets.Match(text) || !someKind.Match(text) }
