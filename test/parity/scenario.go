package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

// Scenario is one file of scenarios/: what it is about, a script, and the
// manifests that the script puts into the manifest directory.
type Scenario struct {
	Name string
	// About is the comment at its head: what a reader should know.
	About string
	Steps []Step
	// Files are the manifests by name, as they stand in the scenario. Those that
	// no step names are there from the start.
	Files map[string]string
	// Number is unique to the scenario in a run; host ports follow from it.
	Number int
}

// Step is one line of a script.
type Step struct {
	Line int
	Verb string
	Args []string
	// Within is how long a wait may take.
	Within time.Duration
}

func (s Step) String() string { return strings.Join(append([]string{s.Verb}, s.Args...), " ") }

// waitTime is how long a wait takes at most that does not say. The kubelet does
// some things only when it looks again, a minute after the last change.
const waitTime = 30 * time.Second

// verbs says how many arguments a step has at least.
var verbs = map[string]int{
	"wait": 1, "sleep": 1, "apply": 1, "replace": 2, "remove": 0,
	"write": 1, "rename": 2, "serve": 1, "serve-instead": 2, "unserve": 1, "url-answers": 1,
	"touch": 1, "rm": 1, "exec": 2, "kill": 1, "rm-container": 1,
	"kill-sandbox": 0, "stop-sandbox": 0, "rm-sandbox": 0,
	"stop-agent": 0, "start-agent": 0, "restart-agent": 0, "kill-agent": 0, "restart-runtime": 0, "end": 0,
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
	s := &Scenario{Name: name, Files: map[string]string{}}
	for _, f := range archive.Files {
		s.Files[f.Name] = string(f.Data)
	}
	for i, line := range strings.Split(string(archive.Comment), "\n") {
		line = strings.TrimSpace(line)
		if about, ok := strings.CutPrefix(line, "#"); ok {
			if len(s.Steps) == 0 {
				s.About = strings.TrimSpace(s.About + " " + strings.TrimSpace(about))
			}
			continue
		}
		if line == "" {
			continue
		}
		step, err := parseStep(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		step.Line = i + 1
		s.Steps = append(s.Steps, step)
	}
	if len(s.Files) == 0 || s.About == "" || len(s.Steps) == 0 {
		return nil, fmt.Errorf("a scenario has a comment that says what it is about, a script, and a manifest")
	}
	return s, s.checkFiles()
}

func (s *Scenario) checkFiles() error {
	renamed := map[string]bool{}
	for _, step := range s.Steps {
		var files []string
		switch step.Verb {
		case "rename":
			files, renamed[step.Args[1]] = step.Args[:1], true
		case "apply", "replace", "serve", "serve-instead", "unserve", "remove":
			files = step.Args
		case "write":
			files = step.Args[:1]
		}
		for _, f := range files {
			if _, ok := s.Files[f]; !ok && !renamed[f] {
				return fmt.Errorf("line %d: there is no manifest %s", step.Line, f)
			}
		}
	}
	return nil
}

func parseStep(line string) (Step, error) {
	words, err := split(line)
	if err != nil {
		return Step{}, err
	}
	step := Step{Verb: words[0], Args: words[1:], Within: waitTime}
	least, ok := verbs[step.Verb]
	if !ok || len(step.Args) < least {
		return Step{}, fmt.Errorf("no such step: %s", line)
	}
	if i := slices.Index(step.Args, "within"); i >= 0 && i == len(step.Args)-2 {
		step.Within, err = time.ParseDuration(step.Args[i+1])
		step.Args = step.Args[:i]
	}
	if step.Verb == "sleep" {
		step.Within, err = time.ParseDuration(step.Args[0])
	}
	return step, err
}

// split cuts a line at blanks outside of double quotes.
func split(line string) ([]string, error) {
	var words []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " \t") {
		var word strings.Builder
		for line != "" && line[0] != ' ' && line[0] != '\t' {
			if line[0] != '"' {
				word.WriteByte(line[0])
				line = line[1:]
				continue
			}
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, fmt.Errorf("quotes: %w", err)
			}
			text, _ := strconv.Unquote(quoted)
			word.WriteString(text)
			line = line[len(quoted):]
		}
		words = append(words, word.String())
	}
	return words, nil
}

// initial are the manifests that are there from the start, sorted.
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
	var files []string
	for f := range s.Files {
		if !named[f] {
			files = append(files, f)
		}
	}
	slices.Sort(files)
	return files
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
