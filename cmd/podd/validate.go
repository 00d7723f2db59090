package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"podd/internal/pod"
	"podd/podconfig"
	"podd/podconfig/file"
	"podd/podconfig/manifest"
)

type validateFlags struct {
	node, output string
	validation   manifest.Validation
}

// verdict is what podd validate has to say; its JSON form is a contract.
type verdict struct {
	Files    int           `json:"files"`
	Pods     []string      `json:"pods"`
	Problems []pod.Problem `json:"problems"`
	// LeftOut are the entries of directories that podd run would leave alone.
	LeftOut []string `json:"leftOut,omitempty"`
}

func newValidateCmd() *cobra.Command {
	f := &validateFlags{}
	cmd := &cobra.Command{
		Use:   "validate FILE|DIRECTORY|-...",
		Short: "Check manifests without running them",
		Long: `Check manifests as podd run would: syntax, unknown fields, the apiserver's own
validation, the rules of pods without an apiserver, fields that podd does not
honour yet, and names that two of the given pods share. Nothing is asked of a
daemon or a runtime. Of a directory, the files that podd run would take are
checked: *.yaml, *.yml, *.json and *.manifest; what is left out is named. "-" is
the standard input.

Each problem is one line, "file:line: field: what is wrong", and below it,
indented, what to do. A warning is about a pod that runs as it is written, which
is probably not what was meant, or about a document that no pod here needs.

Exit codes: 0, also with warnings, 1 if there is any problem, 2 for wrong usage.`,
		Example: `  podd validate /etc/podd/manifests
  podd validate web.yaml db.yaml
  kubectl get pod web -o yaml | podd validate -
  podd validate -o json web.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &exitError{exitUsage, errors.New("give the manifests to check: files, directories, or - for the standard input")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().StringVar(&f.node, "node-name", "", "`name` of the node that the pods are for (default: this machine's)")
	bindValidation(cmd.Flags(), &f.validation, "what becomes of unknown and duplicate fields: a problem, a warning, or nothing")
	addOutput(cmd, &f.output, "json", "yaml")
	return cmd
}

func (f *validateFlags) run(cmd *cobra.Command, args []string) error {
	node := strings.ToLower(f.node)
	if node == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find out this machine's name (give --node-name): %w", err)
		}
		node = strings.ToLower(host)
	}
	limitHeap()
	// Nothing has to be put in order at the end: a signal ends this at once,
	// whether it waits for input or is busy with it.
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	v := validate(args, manifest.Options{NodeName: node, Source: pod.SourceFile, Validation: f.validation}, cmd.InOrStdin())
	out := cmd.OutOrStdout()
	if f.output != "" {
		if err := writeObject(out, f.output, v); err != nil {
			return err
		}
	} else {
		printVerdict(out, v)
	}
	if wrong, _ := v.tally(); wrong > 0 {
		return &exitError{code: 1}
	}
	return nil
}

// validate checks all paths as one set; opt lacks only the origins.
func validate(paths []string, opt manifest.Options, stdin io.Reader) verdict {
	v := verdict{Pods: []string{}, Problems: []pod.Problem{}}
	now := time.Now()
	opt.Now = now
	var pods []*pod.Desired
	one := func(origin string, data []byte, err error) {
		v.Files++
		if u, ok := errors.AsType[*file.Unreadable](err); ok {
			v.Problems = append(v.Problems, pod.Problem{Origin: origin, Message: u.Message, Hint: u.Hint, Since: now})
			return
		}
		opt.Origin = origin
		r := manifest.Decode(data, opt)
		pods = append(pods, r.Pods...)
		v.Problems = append(v.Problems, r.Problems...)
	}
	seen := map[string]bool{}
	for _, path := range paths {
		if path == "-" {
			data, err := io.ReadAll(io.LimitReader(stdin, manifest.MaxBytes+1))
			if err != nil {
				err = &file.Unreadable{Message: "reading the standard input does not work: " + err.Error()}
			}
			one("standard input", data, err)
			continue
		}
		files, leftOut, err := manifestsOf(path)
		v.LeftOut = append(v.LeftOut, leftOut...)
		if err != nil {
			v.Problems = append(v.Problems, pod.Problem{Origin: path, Message: err.Error(), Hint: "is this the right path?", Since: now})
		}
		for _, name := range files {
			if !seen[name] { // a file that is named twice is no duplicate of itself
				seen[name] = true
				data, err := file.Read(name)
				one(name, data, err)
			}
		}
	}
	v.Problems = append(v.Problems, podconfig.Duplicates(pods)...)
	if len(pods) > manifest.MaxPods {
		v.Problems = append(v.Problems, pod.Problem{Origin: pods[manifest.MaxPods].Origin, Since: now,
			Message: fmt.Sprintf("from here on there are more than %d pods, and podd takes no more of one source", manifest.MaxPods),
			Hint:    "remove files that are not for this machine"})
	}
	for _, d := range pods {
		v.Pods = append(v.Pods, d.Name())
	}
	slices.SortStableFunc(v.Problems, func(a, b pod.Problem) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Line, b.Line))
	})
	return v
}

// manifestsOf is a file itself, or the manifests of a directory, and what else
// there is.
func manifestsOf(path string) (files, leftOut []string, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{filepath.Clean(path)}, nil, nil // reading it will say what is wrong
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the directory does not work: %w", err)
	}
	for _, e := range entries {
		if file.IsManifest(e.Name()) {
			files = append(files, filepath.Join(path, e.Name()))
		} else {
			leftOut = append(leftOut, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, leftOut, errors.New("the directory holds no *.yaml, *.yml, *.json or *.manifest")
	}
	return files, leftOut, nil
}

func printVerdict(w io.Writer, v verdict) {
	for _, p := range v.Problems {
		line := p.Where()
		if p.Warning {
			line += ": warning"
		}
		if p.Field != "" {
			line += ": " + p.Field
		}
		fmt.Fprintln(w, printable(line+": "+p.Message))
		if p.Hint != "" {
			fmt.Fprintln(w, printable("    "+p.Hint))
		}
	}
	if n := len(v.LeftOut); n > 0 {
		const most = 20
		names := strings.Join(v.LeftOut[:min(n, most)], ", ")
		if n > most {
			names += fmt.Sprintf(" and %d more", n-most)
		}
		fmt.Fprintln(w, printable("left out: "+names+"\n    podd run takes "+file.Patterns))
	}
	fmt.Fprintf(w, "%s, %s: %s\n", count(v.Files, "file"), count(len(v.Pods), "valid pod"), cmp.Or(countProblems(v.tally()), "all good"))
}

// tally counts what keeps pods from running, and what does not.
func (v verdict) tally() (wrong, warnings int) { return tally(v.Problems) }

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

// countProblems is "2 problems, 1 warning", or nothing.
func countProblems(wrong, warnings int) string {
	var parts []string
	if wrong > 0 {
		parts = append(parts, count(wrong, "problem"))
	}
	if warnings > 0 {
		parts = append(parts, count(warnings, "warning"))
	}
	return strings.Join(parts, ", ")
}
