package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"podd/internal/features"
	"podd/internal/pod"
	"podd/podconfig/file"
	"podd/podconfig/manifest"
)

// ValidateOptions are the options of podd validate.
type ValidateOptions struct {
	// Paths are files, directories, or - for standard input.
	Paths []string
	// Node is the name of the pods' node; empty means this machine's.
	Node string
	// Output is json, yaml, or empty for text.
	Output     string
	Validation manifest.Validation
	// FeatureGates are the node's feature gates, in the syntax of --feature-gates.
	FeatureGates string
}

// Run prints the manifests' problems. If there are any, it returns a silent error with exit
// code 1.
func (o *ValidateOptions) Run(in io.Reader, out io.Writer) error {
	node := o.Node
	if node == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("determine this machine's name (or give --node-name): %w", err)
		}
		node = host
	}
	gates, err := o.gates()
	if err != nil {
		return err
	}
	opt := manifest.Options{NodeName: strings.ToLower(node), Source: pod.SourceFile, Validation: o.Validation, Features: gates}
	v := file.Validate(o.Paths, opt, in)
	if o.Output == "" {
		printVerdict(out, v)
	} else if err := WriteObject(out, o.Output, v); err != nil {
		return err
	}
	if wrong, _ := tally(v.Problems); wrong > 0 {
		return &ExitError{Code: 1}
	}
	return nil
}

func (o *ValidateOptions) gates() (features.Set, error) {
	given, err := features.Parse(o.FeatureGates)
	if err != nil {
		return features.Set{}, UsageErrorf("--feature-gates: %v", err)
	}
	set, wrong := features.New(given)
	if len(wrong) > 0 {
		return features.Set{}, UsageErrorf("--feature-gates: %s: %s", wrong[0].Gate, wrong[0].Message)
	}
	return set, nil
}

func printVerdict(w io.Writer, v file.Verdict) {
	for _, p := range slices.Concat(v.Problems, v.Needs) {
		printProblem(w, p)
	}
	if n := len(v.LeftOut); n > 0 {
		const most = 20
		names := strings.Join(v.LeftOut[:min(n, most)], ", ")
		if n > most {
			names += fmt.Sprintf(" and %d more", n-most)
		}
		fmt.Fprintf(w, "left out: %s\n    podd run reads %s\n", printable(names), file.Patterns)
	}
	good := []string{Count(v.Files, "file"), Count(len(v.Pods), "valid pod")}
	for _, kind := range []struct {
		names []string
		one   string
	}{{v.ConfigMaps, "ConfigMap"}, {v.Secrets, "Secret"}, {v.Volumes, "PersistentVolume"}, {v.Claims, "PersistentVolumeClaim"}, {v.Drivers, "CSIDriver"}} {
		if n := len(kind.names); n > 0 {
			good = append(good, Count(n, kind.one))
		}
	}
	fine := "all good"
	if len(v.Needs) > 0 {
		fine = "all good, given what it needs"
	}
	fmt.Fprintf(w, "%s: %s\n", strings.Join(good, ", "), cmp.Or(countProblems(tally(v.Problems)), fine))
}

func printProblem(w io.Writer, p pod.Problem) {
	line := p.Location()
	if p.Warning {
		line += ": warning"
	}
	if p.Field != "" {
		line += ": " + p.Field
	}
	fmt.Fprintln(w, oneLine(line+": "+p.Message))
	if p.Hint != "" {
		fmt.Fprintln(w, "    "+oneLine(p.Hint))
	}
	for line := range strings.Lines(p.Example) {
		fmt.Fprintln(w, printable(strings.TrimSuffix(line, "\n"))) // unwrapped, so that it can be copied
	}
}

// tally counts problems that keep pods from running, and warnings.
func tally(problems []pod.Problem) (wrong, warnings int) {
	for _, p := range problems {
		if p.Warning {
			warnings++
		} else {
			wrong++
		}
	}
	return wrong, warnings
}

// countProblems returns "2 problems, 1 warning", or "".
func countProblems(wrong, warnings int) string {
	var parts []string
	if wrong > 0 {
		parts = append(parts, Count(wrong, "problem"))
	}
	if warnings > 0 {
		parts = append(parts, Count(warnings, "warning"))
	}
	return strings.Join(parts, ", ")
}
