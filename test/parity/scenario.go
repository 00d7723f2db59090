package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"podd/internal/story"
)

// Scenario is one file of scenarios/: what it is about, a script, and the
// manifests that the script puts into the manifest directory.
type Scenario struct {
	Name string
	// About is the comment at its head: what a reader should know.
	About string
	// Script is what is played, and Steps are its commands.
	Script string
	Steps  []Step
	// Files are the manifests by name, as they stand in the scenario. Those that
	// no step names are there from the start.
	Files map[string]string
	// Number is unique to the scenario in a run; host ports follow from it.
	Number int
}

// Step is one command of a script.
type Step struct {
	Verb string
	Args []string
}

// steps are the commands and their arguments; those in brackets may be missing.
var steps = map[string]string{
	"needs": "apiserver", "wait": "POD FACT…", "sleep": "DURATION", "stop": "",
	"apply": "FILE", "replace": "FILE FILE", "remove": "[FILE…]", "write": "FILE [FILE]", "rename": "FILE FILE",
	"serve": "FILE…", "serve-instead": "FILE FILE", "unserve": "FILE…", "url-answers": "CODE",
	"touch": "FILE", "rm": "FILE", "exec": "POD/CONTAINER COMMAND…", "kill": "POD/CONTAINER", "rm-container": "POD/CONTAINER",
	"kill-sandbox": "", "stop-sandbox": "", "rm-sandbox": "",
	"stop-agent": "", "start-agent": "", "restart-agent": "", "kill-agent": "", "restart-runtime": "",
}

// loadScenarios reads every scenario of a directory whose name matches the
// pattern (see filepath.Match); an empty pattern matches all.
func loadScenarios(dir, pattern string) ([]*Scenario, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, err
	}
	var all []*Scenario
	for i, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		if ok, err := filepath.Match(cmp.Or(pattern, "*"), name); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		} else if !ok {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a scenario: %w", err)
		}
		s, err := parseScenario(name, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		s.Number = i
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no scenario in %s matches %q", dir, pattern)
	}
	return all, nil
}

func parseScenario(name string, text []byte) (*Scenario, error) {
	archive := txtar.Parse(text)
	s := &Scenario{Name: name, Files: map[string]string{}, Script: string(archive.Comment)}
	for _, f := range archive.Files {
		s.Files[f.Name] = string(f.Data)
	}
	for line := range strings.Lines(s.Script) {
		about, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok && strings.TrimSpace(line) != "" {
			break
		}
		s.About = strings.TrimSpace(s.About + " " + strings.TrimSpace(about))
	}
	err := s.play(context.Background(), func(_ context.Context, step Step) error {
		s.Steps = append(s.Steps, step)
		return s.check(step)
	})
	if err == nil && s.inCluster() != strings.HasPrefix(name, clusterPrefix) {
		err = fmt.Errorf("the names of scenarios that need an apiserver begin with %q, and no other's do", clusterPrefix)
	}
	if err == nil && (len(s.Files) == 0 || s.About == "" || len(s.Steps) == 0) {
		err = fmt.Errorf("a scenario has a comment that says what it is about, a script, and a manifest")
	}
	return s, err
}

// play has do carry out the steps one after the other, until one fails or is
// story.ErrStop.
func (s *Scenario) play(ctx context.Context, do func(context.Context, Step) error) error {
	words := map[string]story.Command{}
	for verb, args := range steps {
		words[verb] = story.Command{Args: args, Do: func(ctx context.Context, args []string) error { return do(ctx, Step{verb, args}) }}
	}
	return story.Play(ctx, s.Name, s.Script, words)
}

// check says what is wrong with a step, which is the last of those so far, before
// anything is played.
func (s *Scenario) check(step Step) error {
	var files []string
	switch step.Verb {
	case "wait":
		words, _, err := story.CutTimeout(step.Args)
		if err != nil {
			return err
		}
		_, err = story.ParseFacts(words)
		return err
	case "needs":
		if step.Args[0] != "apiserver" || len(s.Steps) != 1 {
			return fmt.Errorf("needs apiserver is what a script begins with")
		}
		return nil
	case "sleep":
		_, err := time.ParseDuration(step.Args[0])
		return err
	case "apply", "replace", "serve", "serve-instead", "unserve", "remove":
		files = step.Args
	case "write", "rename":
		files = step.Args[:1]
	}
	for _, f := range files {
		renamed := slices.ContainsFunc(s.Steps, func(before Step) bool { return before.Verb == "rename" && before.Args[1] == f })
		if _, ok := s.Files[f]; !ok && !renamed {
			return fmt.Errorf("there is no manifest %s", f)
		}
	}
	return nil
}

// initial are the manifests that are there from the start, pods last.
func (s *Scenario) initial() []string {
	named := map[string]bool{}
	for _, step := range s.Steps {
		switch step.Verb {
		case "apply", "write":
			named[step.Args[0]] = true
		case "replace", "serve-instead":
			named[step.Args[1]] = true
		case "serve":
			for _, file := range step.Args {
				named[file] = true
			}
		}
	}
	files := map[string]string{}
	for f, text := range s.Files {
		if !named[f] {
			files[f] = text
		}
	}
	return podsLast(files)
}

// podName is the name of the pod of a manifest that names none: the scenario's,
// and for others than pod.yaml the file's too.
func (s *Scenario) podName(file string) string {
	base := strings.TrimSuffix(file, ".yaml")
	if base == "pod" {
		return s.Name
	}
	return s.Name + "-" + base
}

// alone says whether it must be played with no other beside it.
func (s *Scenario) alone() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return slices.Contains(alone, step.Verb) })
}

// clusterPrefix begins the name of a scenario that is played with an apiserver on the
// kubelet's side, so that differences.yaml can speak of all of them.
const clusterPrefix = "api-"

// inCluster says whether the kubelet needs an apiserver for it.
func (s *Scenario) inCluster() bool { return len(s.Steps) > 0 && s.Steps[0].Verb == "needs" }

// fromSources are the steps that say where a manifest is found.
var fromSources = []string{"serve", "serve-instead", "unserve", "url-answers", "rename", "write"}

// underOwnName says whether podd plays it under its own name, too, as a program without a
// cluster: those that are about files and URLs, which it reads more strictly then, and those
// for which a kubelet needs an apiserver, and podd has files.
func (s *Scenario) underOwnName() bool {
	return s.inCluster() || slices.ContainsFunc(s.Steps, func(step Step) bool { return slices.Contains(fromSources, step.Verb) }) ||
		slices.ContainsFunc(slices.Collect(maps.Keys(s.Files)), raw)
}

// cut says whether the last status is the one after the last step, whatever would
// follow.
func (s *Scenario) cut() bool { return s.Steps[len(s.Steps)-1].Verb == "stop" }

// raw says whether a manifest is put into place as it stands, placeholders aside:
// one of several documents, or one with mistakes.
func raw(file string) bool { return strings.HasSuffix(file, ".raw") }

// manifest is a manifest as it is put into place: placeholders (@OUT@) replaced
// and what every scenario would repeat added. as is the file whose place it
// takes.
func (s *Scenario) manifest(file, as string, values map[string]string) (string, error) {
	text := s.Files[file]
	for key, value := range values {
		text = strings.ReplaceAll(text, "@"+key+"@", value)
	}
	if raw(file) {
		return text, nil
	}
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	setDefault(object, "apiVersion", "v1")
	setDefault(object, "kind", "Pod")
	setDefault(object, "metadata", map[string]any{})
	setDefault(object["metadata"].(map[string]any), "name", s.podName(as))
	if onlyObjects(text) {
		out, err := yaml.Marshal(object)
		return string(out), err
	}
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return "", fmt.Errorf("%s has no spec", file)
	}
	setDefault(spec, "terminationGracePeriodSeconds", 2)
	setDefault(spec, "dnsPolicy", "Default")
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			c := c.(map[string]any)
			setDefault(c, "image", imageBusybox)
			setDefault(c, "imagePullPolicy", "IfNotPresent")
			share(spec, c, "out", values["OUT"], false)
			share(spec, c, "tools", values["TOOLS"], true)
		}
	}
	out, err := yaml.Marshal(object)
	return string(out), err
}

// podNames are the names that a manifest gives its pods. In a raw one, which need
// not be readable, all words that begin with the scenario's name are such names.
func (s *Scenario) podNames(file, manifest string) ([]string, error) {
	if onlyObjects(manifest) {
		return nil, nil
	}
	if raw(file) || strings.Contains(manifest, "\n---") {
		words := regexp.MustCompile(`\b`+regexp.QuoteMeta(s.Name)+`[-a-z0-9]*`).FindAllString(manifest, -1)
		slices.Sort(words)
		return slices.Compact(words), nil
	}
	var object struct{ Metadata struct{ Name string } }
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return []string{object.Metadata.Name}, nil
}

func setDefault(m map[string]any, key string, value any) {
	if _, ok := m[key]; !ok {
		m[key] = value
	}
}

// share mounts a directory of the harness into a container that speaks of it.
func share(spec, container map[string]any, name, dir string, readOnly bool) {
	text, _ := yaml.Marshal(container)
	// The tools write to /out.
	if !strings.Contains(string(text), "/"+name) && !strings.Contains(string(text), "/tools/") {
		return
	}
	mounts, _ := container["volumeMounts"].([]any)
	mount := map[string]any{"name": name, "mountPath": "/" + name}
	if readOnly {
		mount["readOnly"] = true
	}
	container["volumeMounts"] = append(mounts, mount)
	volumes, _ := spec["volumes"].([]any)
	if !slices.ContainsFunc(volumes, func(v any) bool { return v.(map[string]any)["name"] == name }) {
		volume := map[string]any{"name": name, "hostPath": map[string]any{"path": dir}}
		spec["volumes"] = append(volumes, volume)
	}
}
